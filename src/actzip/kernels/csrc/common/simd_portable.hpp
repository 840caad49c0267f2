// simd.hpp in plain C++: arrays of 8 floats, left to the compiler to vectorise.
#pragma once

#include "common/core.hpp"

ACTZIP_BEGIN

constexpr int kLanes = 8;
struct F { float a[kLanes]; };
struct Bytes { uint8_t a[32]; };
using Mask = F;  // not zero: on

template <class G> ACTZIP_INLINE F each(G&& f) {
  F r;
  for (int i = 0; i < kLanes; ++i) r.a[i] = f(i);
  return r;
}
template <class G> ACTZIP_INLINE uint32_t each_bit(G&& f) {
  uint32_t r = 0;
  for (int i = 0; i < kLanes; ++i) r |= uint32_t(f(i)) << i;
  return r;
}
template <class G> ACTZIP_INLINE Bytes each_byte(G&& f) {
  Bytes r;
  for (int i = 0; i < 32; ++i) r.a[i] = f(i);
  return r;
}
ACTZIP_INLINE uint32_t raw_bits(float x) { return bit_cast<uint32_t>(x); }
// Adding 1.5 * 2^23 leaves the nearest integer in the low bits; exact for |x| < 2^22.
ACTZIP_INLINE float rint_small(float x) { return (x + 12582912.0f) - 12582912.0f; }

ACTZIP_INLINE F set1(float x) { return each([&](int) { return x; }); }
ACTZIP_INLINE F vadd(F a, F b) { return each([&](int i) { return a.a[i] + b.a[i]; }); }
ACTZIP_INLINE F vsub(F a, F b) { return each([&](int i) { return a.a[i] - b.a[i]; }); }
ACTZIP_INLINE F vmul(F a, F b) { return each([&](int i) { return a.a[i] * b.a[i]; }); }
ACTZIP_INLINE F vmin(F a, F b) { return each([&](int i) { return a.a[i] < b.a[i] ? a.a[i] : b.a[i]; }); }
ACTZIP_INLINE F vmax(F a, F b) { return each([&](int i) { return a.a[i] > b.a[i] ? a.a[i] : b.a[i]; }); }
ACTZIP_INLINE F vabs(F a) { return each([&](int i) { return bit_cast<float>(raw_bits(a.a[i]) & 0x7fffffff); }); }
ACTZIP_INLINE F vrint(F a) { return each([&](int i) { return rint_small(a.a[i]); }); }
ACTZIP_INLINE F vor(F a, F b) {
  return each([&](int i) { return bit_cast<float>(raw_bits(a.a[i]) | raw_bits(b.a[i])); });
}
ACTZIP_INLINE F vsign(F a) { return each([&](int i) { return bit_cast<float>(raw_bits(a.a[i]) & 0x80000000); }); }
// a where c is not zero, else +0.
ACTZIP_INLINE F where_nonzero(F c, F a) { return each([&](int i) { return c.a[i] != 0 ? a.a[i] : 0.0f; }); }
// Takes the numbers of a that are not zero into the least and the largest so far.
ACTZIP_INLINE void see_nonzero(F a, F& lo, F& hi) {
  lo = each([&](int i) { return a.a[i] != 0 && a.a[i] < lo.a[i] ? a.a[i] : lo.a[i]; });
  hi = each([&](int i) { return a.a[i] != 0 && a.a[i] > hi.a[i] ? a.a[i] : hi.a[i]; });
}
// |a| raised to tiny, with the sign of a; +0 where not `here`.
ACTZIP_INLINE F apart_from_zero(const Mask& here, F a, F tiny) {
  return where_nonzero(here, vor(vsign(a), vmax(vabs(a), tiny)));
}
ACTZIP_INLINE uint32_t bits_nonzero(F a) { return each_bit([&](int i) { return a.a[i] != 0; }); }
ACTZIP_INLINE Mask mask_nonzero(F a) { return a; }
ACTZIP_INLINE uint32_t nonzero32(const F* a) {
  uint32_t word = 0;
  for (int k = 0; k < 4; ++k) word |= bits_nonzero(a[k]) << (8 * k);
  return word;
}
ACTZIP_INLINE uint32_t bits_not_le_zero(F a) { return each_bit([&](int i) { return !(a.a[i] <= 0); }); }
ACTZIP_INLINE uint32_t bits_same(F a, F b) {
  return each_bit([&](int i) { return raw_bits(a.a[i]) == raw_bits(b.a[i]); });
}
// Whether a NaN was met.
using Odd = bool;
ACTZIP_INLINE Odd no_odd() { return false; }
ACTZIP_INLINE Odd odd_or(Odd o, F a, F b) {
  for (int i = 0; i < kLanes; ++i) o |= a.a[i] != a.a[i] || b.a[i] != b.a[i];
  return o;
}
ACTZIP_INLINE bool any_odd(Odd o) { return o; }
ACTZIP_INLINE float reduce_min(F a) {
  float m = a.a[0];
  for (int i = 1; i < kLanes; ++i) m = a.a[i] < m ? a.a[i] : m;
  return m;
}
ACTZIP_INLINE float reduce_max(F a) {
  float m = a.a[0];
  for (int i = 1; i < kLanes; ++i) m = a.a[i] > m ? a.a[i] : m;
  return m;
}
template <class T> ACTZIP_INLINE F load(const T* p) { return each([&](int i) { return widen(p[i]); }); }
template <class T> ACTZIP_INLINE void store(T* p, F a) {
  for (int i = 0; i < kLanes; ++i) p[i] = narrow<T>(a.a[i]);
}

template <class T> ACTZIP_INLINE void load_all(const T* p, F* v) {
  for (int k = 0; k < 4; ++k) v[k] = load(p + 8 * k);
}
template <class T> ACTZIP_INLINE void store_all(T* p, const F* v) {
  for (int k = 0; k < 4; ++k) store(p + 8 * k, v[k]);
}

// Other instruction sets can write past the caches.
template <class T> ACTZIP_INLINE void stream_all(T* p, const F* v) { store_all(p, v); }
ACTZIP_INLINE void stream_line(void* to, const void* from) { std::memcpy(to, from, 64); }
ACTZIP_INLINE void end_stream() {}

// The Weyl sequence of successive blocks, 16 words each.
struct Weyl { uint32_t at; };
ACTZIP_INLINE Weyl weyl_from(uint32_t start) { return {start}; }
// w of 32 elements, where v = w - kRawBias.
constexpr float kRawBias = 0;
ACTZIP_INLINE void mix_raw(Weyl& weyl, uint32_t middle, F* w) {
  for (int i = 0; i < 16; ++i) {
    const uint32_t x = mix_word(Key{weyl.at, middle}, uint32_t(i));
    w[i / 8].a[i % 8] = dither_of(int16_t(x));
    w[2 + i / 8].a[i % 8] = dither_of(int16_t(x >> 16));
  }
  weyl.at += 16 * kWeyl;
}

// The high bytes of the half words, their top bits turned.
ACTZIP_INLINE Bytes top_bytes(const F* w) {
  return each_byte([&](int i) { return uint8_t((w[i / 8].a[i % 8] + 0.5f) * 256); });
}

ACTZIP_INLINE Bytes round_saturate(const F* t) {
  return each_byte([&](int i) {
    const float x = t[i / 8].a[i % 8];
    return uint8_t(rint_small(x > 0 ? (x < 255 ? x : 255.0f) : 0.0f));
  });
}
ACTZIP_INLINE void widen_bytes(const Bytes& b, F* v) {
  for (int i = 0; i < 32; ++i) v[i / 8].a[i % 8] = float(b.a[i]);
}

ACTZIP_INLINE Bytes zero_bytes() { return each_byte([](int) { return uint8_t(0); }); }
ACTZIP_INLINE Bytes load_bytes(const uint8_t* p) { return each_byte([&](int i) { return p[i]; }); }
ACTZIP_INLINE void store_bytes(uint8_t* p, const Bytes& b) { std::memcpy(p, b.a, 32); }
ACTZIP_INLINE Bytes min_bytes(const Bytes& a, uint8_t top) {
  return each_byte([&](int i) { return min_of(a.a[i], top); });
}
ACTZIP_INLINE Bytes add_bytes(const Bytes& a, uint8_t n) {
  return each_byte([&](int i) { return uint8_t(min_of(255, a.a[i] + n)); });
}
ACTZIP_INLINE uint32_t nonzero_bytes(const Bytes& a) {
  uint32_t r = 0;
  for (int i = 0; i < 32; ++i) r |= uint32_t(a.a[i] != 0) << i;
  return r;
}
ACTZIP_INLINE uint32_t plane(const Bytes& a, int j) {
  uint32_t r = 0;
  for (int i = 0; i < 32; ++i) r |= uint32_t(a.a[i] >> j & 1) << i;
  return r;
}
ACTZIP_INLINE uint32_t plane_where(uint32_t here, const Bytes& a, int j) { return here & plane(a, j); }
ACTZIP_INLINE Bytes or_plane(const Bytes& a, uint32_t word, int j) {
  return each_byte([&](int i) { return uint8_t(a.a[i] | (word >> i & 1) << j); });
}

struct PlanesDown {
  Bytes a;
  int at;
  ACTZIP_INLINE PlanesDown(const Bytes& codes, int bits) : a(codes), at(bits) {}
  ACTZIP_INLINE uint32_t next(uint32_t keep) { return plane_where(keep, a, --at); }
};
ACTZIP_INLINE Bytes twice_and_plane(const Bytes& a, uint32_t word) {
  return each_byte([&](int i) { return uint8_t(2 * a.a[i] + (word >> i & 1)); });
}

constexpr int kFewBits = 0;  // no unpack_few

// The least and the largest of 16-bit floats, as integers in their order (group/range.hpp).
template <bool Zero> struct SeenWords {
  int16_t lo = 0x7fff, hi = -0x8000;
  template <class T> ACTZIP_INLINE void see(const T* x) {
    for (int i = 0; i < 32; ++i) {
      const int16_t w = int16_t(x[i].bits), o = int16_t(w ^ (w >> 15 & 0x7fff));
      if (Zero && !(w & 0x7fff)) continue;
      lo = min_of(lo, o);
      hi = max_of(hi, o);
    }
  }
  int16_t least() const { return lo; }
  int16_t largest() const { return hi; }
};

ACTZIP_END
