// Blocks of 32 elements, the unit of every kernel: the same functions for three instruction sets.
//
//   Block                       32 floats in registers
//   Bytes                       32 bytes in registers: one code each
//   load32, store32             from and to float, bf16, f16 (rounded to nearest even)
//   dither_block(key, block)    v of 32 elements, equal to core.hpp's dither_block_scalar
//   round_bytes(t)              nearest integers, saturated to 0…255
//   plane(bytes, j)             bit j of the 32 bytes, element i in bit i
//   or_plane(bytes, word, j)    the way back
//   to_floats(bytes)            codes as floats
#pragma once

#include "core.hpp"

#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include "simd_avx512.hpp"
#elif defined(__AVX2__)
#include "simd_avx2.hpp"
#else
#include "simd_portable.hpp"
#endif

ACTZIP_BEGIN

constexpr int kVectors = 32 / kLanes;

struct Block { F v[kVectors]; };

template <class T>
ACTZIP_INLINE Block load32(const T* p) {
  Block b;
  for (int k = 0; k < kVectors; ++k) b.v[k] = load(p + k * kLanes);
  return b;
}

template <class T>
ACTZIP_INLINE void store32(T* p, const Block& b) {
  for (int k = 0; k < kVectors; ++k) store(p + k * kLanes, b.v[k]);
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

ACTZIP_INLINE Block dither_block(Key key, int64_t block) {
  Block b;
  mix_dither(uint32_t(uint64_t(block) * 16) * kWeyl + key.start, key.middle, b.v);
  return b;
}

ACTZIP_INLINE Bytes round_bytes(const Block& t) { return round_saturate(t.v); }

ACTZIP_INLINE Block to_floats(Bytes bytes) {
  Block b;
  widen_bytes(bytes, b.v);
  return b;
}

// Where a Block must take part in code that is not written for vectors.
ACTZIP_INLINE void spill(const Block& b, float* out) { store32(out, b); }

ACTZIP_END
