// Blocks of 32 elements, the unit of every kernel: the same functions for three instruction sets.
//
//   Block                       32 floats in registers
//   Bytes                       32 bytes in registers: one code each
//   load32, store32             from and to float, bf16, f16 (rounded to nearest even)
//   dither_block(key, block)    v of 32 elements, equal to core.hpp's dither_block_scalar
//   Noise(key, block)           the same for blocks that follow each other
//   round_bytes(t)              nearest integers, saturated to 0…255
//   plane(bytes, j)             bit j of the 32 bytes, element i in bit i
//   or_plane(bytes, word, j)    the way back
//   PlanesDown, twice_and_plane both from the highest plane on, for a number of bits at run time
//   to_floats(bytes)            codes as floats
//   unpack_floats(planes)       codes as floats, straight from their bit planes
#pragma once

#include "common/core.hpp"

#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include "common/simd_avx512.hpp"
#elif defined(__AVX2__)
#include "common/simd_avx2.hpp"
#else
#include "common/simd_portable.hpp"
#endif

ACTZIP_BEGIN

constexpr int kVectors = 32 / kLanes;

struct Block { F v[kVectors]; };

template <class T>
ACTZIP_INLINE Block load32(const T* p) {
  Block b;
  load_all(p, b.v);
  return b;
}

template <class T>
ACTZIP_INLINE void store32(T* p, const Block& b) {
  store_all(p, b.v);
}

// store32 past the caches, to the beginning of a line (core.hpp); end_stream() follows the last.
template <class T>
ACTZIP_INLINE void stream32(T* p, const Block& b) {
  stream_all(p, b.v);
}

// Whole lines from one place to another, past the caches.
ACTZIP_INLINE void stream_copy(void* to, const void* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64)
    stream_line(static_cast<uint8_t*>(to) + i, static_cast<const uint8_t*>(from) + i);
  end_stream();
}

ACTZIP_INLINE Block spread32(float x) {
  Block b;
  for (int k = 0; k < kVectors; ++k) b.v[k] = set1(x);
  return b;
}

// f(element vector) for each vector of the block.
template <class G>
ACTZIP_INLINE Block map(const Block& a, G&& f) {
  Block b;
  for (int k = 0; k < kVectors; ++k) b.v[k] = f(a.v[k]);
  return b;
}

template <class G>
ACTZIP_INLINE Block map(const Block& a, const Block& c, G&& f) {
  Block b;
  for (int k = 0; k < kVectors; ++k) b.v[k] = f(a.v[k], c.v[k]);
  return b;
}

// One bit per element from a comparison: bits(vector) gives kLanes bits.
template <class G>
ACTZIP_INLINE uint32_t bits32(const Block& a, G&& bits) {
  uint32_t word = 0;
  for (int k = 0; k < kVectors; ++k) word |= uint32_t(bits(a.v[k])) << (k * kLanes);
  return word;
}

// Dither of successive blocks of 32, beginning with `block`: raw() gives w with v = w - kRawBias.
struct Noise {
  Weyl weyl;
  uint32_t middle;
  ACTZIP_INLINE Noise(Key key, int64_t block)
      : weyl(weyl_from(uint32_t(uint64_t(block) * 16) * kWeyl + key.start)), middle(key.middle) {}
  ACTZIP_INLINE Block raw() {
    Block w;
    mix_raw(weyl, middle, w.v);
    return w;
  }
  ACTZIP_INLINE void skip(int blocks) {
    for (int b = 0; b < blocks; ++b) raw();
  }
  ACTZIP_INLINE Block next() {
    const Block w = raw();
    return kRawBias == 0 ? w : map(w, [](F a) { return vsub(a, set1(kRawBias)); });
  }
};

ACTZIP_INLINE Block dither_block(Key key, int64_t block) { return Noise(key, block).next(); }

ACTZIP_INLINE Bytes round_bytes(const Block& t) { return round_saturate(t.v); }

ACTZIP_INLINE Block to_floats(Bytes bytes) {
  Block b;
  widen_bytes(bytes, b.v);
  return b;
}

// Codes of 32 elements from their bit planes.
template <int N> ACTZIP_INLINE Bytes load_whole(Bits<N>, const uint8_t* in) {
  Bytes codes = zero_bytes();
#pragma GCC unroll 8
  for (int j = 0; j < N; ++j) codes = or_plane(codes, load_as<uint32_t>(in + 4 * j), j);
  return codes;
}
ACTZIP_INLINE Bytes load_whole(Bits<0> bits, const uint8_t* in) {
  Bytes codes = zero_bytes();
  for (int j = bits; j-- > 0;) codes = twice_and_plane(codes, load_as<uint32_t>(in + 4 * j));
  return codes;
}

// code + base of 32 elements from their bit planes, and which codes are not 0.
template <int N>
ACTZIP_INLINE void unpack_floats(Bits<N> bits, const uint8_t* in, float base, F* q, Mask* nonzero) {
  if constexpr (0 < N && N <= kFewBits) {
    unpack_few(bits, in, base, q, nonzero);
  } else {
    widen_bytes(load_whole(bits, in), q);
    for (int k = 0; k < kVectors; ++k) {
      nonzero[k] = mask_nonzero(q[k]);
      q[k] = vadd(q[k], set1(base));
    }
  }
}

// Where a Block must take part in code that is not written for vectors.
ACTZIP_INLINE void spill(const Block& b, float* out) { store32(out, b); }

ACTZIP_END
