// 32 elements to codes and back: one step of the group code, in float and in double.
//
//   code  = clamp(rint((x - lo) * (1 / step) + v), 0, levels)       + 1 when zero has a code
//   x     = lo + (code - v) * step                                   (v only when subtractive)
//
// Every operation is rounded on its own and in this order, on every backend.
#pragma once

#include "group/range.hpp"
#include "exact/planes.hpp"

ACTZIP_BEGIN

// Dither of successive blocks; the key changes every 2^28 blocks.
struct Dither {
  uint64_t seed;
  uint64_t high = ~0ull;
  Key key{};
  ACTZIP_INLINE const Key& at(int64_t block) {
    if (uint64_t(block) >> 28 != high) {
      high = uint64_t(block) >> 28;
      key = stream_key(seed, high);
    }
    return key;
  }
};

struct Coding {
  int bits;
  bool zero;    // code 0 means exactly zero
  bool noisy;   // v is added when encoding
  bool subtract;  // v is subtracted when decoding
  int levels() const { return (1 << bits) - (zero ? 2 : 1); }
};

template <class R> struct Wide { R a[32]; };  // 32 elements of R, for what is not vectorised

template <class R> ACTZIP_INLINE R reciprocal(R step) { return step > 0 ? R(1) / step : R(0); }

// ---- float, bf16, f16: vectors ----

template <bool Zero, bool Noisy>
ACTZIP_INLINE Bytes codes32(const Block& x, const Block& lo, const Block& inverse, Noise& noise, int levels) {
  Block t = map(map(x, lo, [](F a, F b) { return vsub(a, b); }), inverse,
                [](F a, F b) { return vmul(a, b); });
  if (Noisy) t = map(t, noise.next(), [](F a, F b) { return vadd(a, b); });
  const Bytes codes = min_bytes(round_bytes(t), uint8_t(levels));
  return Zero ? add_bytes(codes, 1) : codes;
}

// Codes of the first m of 32 elements that may have a lo and a step each.
template <bool Zero, bool Noisy>
ACTZIP_INLINE void encode32(const Block& x, const Block& lo, const Block& inverse, Key key,
                            int64_t block, int bits, int levels, int64_t m, uint8_t* out) {
  Noise noise(key, block);
  const Bytes codes = codes32<Zero, Noisy>(x, lo, inverse, noise, levels);
  store_planes(codes, first_bits(m) & (Zero ? nonzero32(x.v) : ~0u), bits, m, out);
}

// The smallest number above zero.
template <class T> struct Tiny { static constexpr float value = 0x1p-149f; };
template <> struct Tiny<bf16> { static constexpr float value = 0x1p-133f; };
template <> struct Tiny<f16> { static constexpr float value = 0x1p-24f; };

template <class T> ACTZIP_INLINE F into_range(F a) { return a; }
template <> ACTZIP_INLINE F into_range<f16>(F a) {
  return vmin(vmax(a, set1(-65504.0f)), set1(65504.0f));  // half a step beyond must not be infinity
}

// The same for one element, of any type.
template <class T> ACTZIP_INLINE Real<T> bounded(Real<T> x) { return x; }
template <> ACTZIP_INLINE float bounded<f16>(float x) {
  return x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
}

// q: codes counted from the one that stands for lo, less the dither.
template <class T, bool Zero>
ACTZIP_INLINE Block values32(const Block& q, const Mask* nonzero, const Block& lo, const Block& step) {
  Block x = map(lo, map(q, step, [](F a, F b) { return vmul(a, b); }),
                [](F a, F b) { return vadd(a, b); });
  x = map(x, [](F a) { return into_range<T>(a); });
  if (Zero)  // a stored non-zero never decodes to zero: `decoded != 0` is the mask
    for (int k = 0; k < kVectors; ++k)
      x.v[k] = apart_from_zero(nonzero[k], x.v[k], set1(Tiny<T>::value));
  return x;
}

// The way back of encode32.
template <class T, bool Zero, bool Subtract>
ACTZIP_INLINE Block decode32(const uint8_t* in, const Block& lo, const Block& step, Key key,
                             int64_t block, int bits, int64_t m) {
  Block q = to_floats(load_planes(in, bits, m));
  Mask nonzero[kVectors];
  for (int k = 0; k < kVectors; ++k) nonzero[k] = mask_nonzero(q.v[k]);
  if (Zero) q = map(q, [](F a) { return vsub(a, set1(1.0f)); });
  if (Subtract) q = map(q, dither_block(key, block), [](F a, F b) { return vsub(a, b); });
  return values32<T, Zero>(q, nonzero, lo, step);
}

// ---- double: plain loops ----

ACTZIP_INLINE double rint_small(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

inline void encode32(const Wide<double>& x, const Wide<double>& lo, const Wide<double>& inverse,
                     const Key& key, int64_t block, const Coding& c, int64_t m, uint8_t* out) {
  float v[32] = {};
  if (c.noisy) dither_block_scalar(key, block, v);
  uint8_t codes[32] = {};
  uint32_t keep = first_bits(m);
  for (int i = 0; i < 32; ++i) {
    const double t = rint_small((x.a[i] - lo.a[i]) * inverse.a[i] + double(v[i]));
    const int q = t > 0 ? (t < c.levels() ? int(t) : c.levels()) : 0;
    codes[i] = uint8_t(q + c.zero);
    if (c.zero && x.a[i] == 0) keep &= ~(1u << i);
  }
  store_planes(load_bytes(codes), keep, c.bits, m, out);
}

inline Wide<double> decode32(const uint8_t* in, const Wide<double>& lo, const Wide<double>& step,
                             const Key& key, int64_t block, const Coding& c, int64_t m) {
  float v[32] = {};
  if (c.subtract) dither_block_scalar(key, block, v);
  uint8_t codes[32];
  store_bytes(codes, load_planes(in, c.bits, m));
  Wide<double> x;
  for (int i = 0; i < 32; ++i) {
    double q = double(codes[i]);
    if (c.zero) q = q - 1.0;
    if (c.subtract) q = q - double(v[i]);
    double y = lo.a[i] + q * step.a[i];
    if (c.zero) {
      const double size = __builtin_fabs(y) > 0x1p-1074 ? __builtin_fabs(y) : 0x1p-1074;
      y = codes[i] ? __builtin_copysign(size, y) : 0.0;
    }
    x.a[i] = y;
  }
  return x;
}

ACTZIP_END
