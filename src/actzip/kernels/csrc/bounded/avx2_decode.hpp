// A whole chunk back to values with AVX2, for the usual case: dithered, no block of differences, and
// no code that takes more than a byte. Two passes, for the reason given in pack.hpp.
#pragma once

#include "bounded/wide_decode.hpp"

#if defined(__AVX2__) && defined(__BMI2__) && !defined(__AVX512F__)
#define ACTZIP_BOUNDED_DECODE

ACTZIP_BEGIN
namespace bounded {

inline bool is_usual(const uint8_t* headers) {
  bool odd = false;
  for (int b = 0; b < BLOCKS_PER_CHUNK; ++b) {
    const uint8_t h = headers[b];
    const int most = h >= BITMAP * 32 ? 7 : 8;  // a bitmap's code plus one is a byte
    odd |= (h != RAW) & ((h >= DELTA * 32) | ((h & 31) > most));
  }
  return !odd;
}

// The codes of a bitmap block plus one, and 0 for its zeros; returns their bytes.
ACTZIP_INLINE int unpack_map(const uint8_t* from, uint64_t present, int width, uint8_t* to) {
  const uint64_t codes = Lanes<uint8_t>::ones * first_bits(width);
  int bit = 0;
  for (int k = 0; k < 8; ++k, present >>= 8) {
    const uint64_t places = _pdep_u64(present & 255, Lanes<uint8_t>::ones);
    const uint64_t word = load_as<uint64_t>(from + (bit >> 3)) >> (bit & 7);
    store_as(to + 8 * k, _pdep_u64(word, places * 255 & codes) + places);
    bit += __builtin_popcountll(places) * width;
  }
  return bytes_of(bit);
}

// Codes as bytes, 0 for zeros; raw blocks are copied to `out` at once.
template <class T>
inline bool unpack_bytes(const uint8_t* headers, Source from, T* out, uint8_t* to) {
  for (int b = 0; b < BLOCKS_PER_CHUNK; ++b, to += BLOCK) {
    if (from.at > from.end) return false;
    const int width = headers[b] & 31;
    if (headers[b] == RAW) {
      if (from.end - from.at < int64_t(BLOCK * sizeof(T))) return false;
      std::memcpy(out + b * BLOCK, from.at, BLOCK * sizeof(T));
      from.at += BLOCK * sizeof(T);
    } else if (headers[b] >= BITMAP * 32) {
      const uint64_t present = load_as<uint64_t>(from.at);
      from.at += 8 + unpack_map(from.at + 8, present, width, to);
    } else {
      const uint64_t mask = Lanes<uint8_t>::ones * first_bits(width);
      for (int k = 0; k < 8; ++k)
        store_as(to + 8 * k, _pdep_u64(load_as<uint64_t>(from.at + k * width), mask));
      from.at += 8 * width;
    }
  }
  return from.at <= from.end;
}

// 64 values from their codes plus one.
template <class T, bool SIGNED, bool ONE>
ACTZIP_INLINE void dequantize_bytes(const uint8_t* codes, const Grid<float>& g, Noise& noise, T* out) {
  const __m256i one = _mm256_set1_epi32(1);
  for (int h = 0; h < 2; ++h) {
    const Block v = noise.next();
    Block y;
    for (int k = 0; k < kVectors; ++k) {
      const int at = 32 * h + kLanes * k;
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + at));
      const __m256i u = _mm256_cvtepu8_epi32(bytes), c = _mm256_sub_epi32(u, one);
      const __m256i even = _mm256_sub_epi32(_mm256_and_si256(c, one), one);  // all bits of it, or none
      const __m256i q = SIGNED ? _mm256_xor_si256(_mm256_srli_epi32(c, 1), even) : c;
      const F step = ONE ? set1(g.step[0]) : load(g.step + at);
      const F x = vmul(vsub(_mm256_cvtepi32_ps(q), v.v[k]), step);
      const __m256i zero = _mm256_cmpeq_epi32(u, _mm256_setzero_si256());
      y.v[k] = _mm256_andnot_ps(as_float(zero), x);
    }
    store32(out + 32 * h, y);
  }
}

// Decodes a whole chunk whose headers are usual.
template <class T, bool ONE>
inline bool decode_wide(const Spec& spec, int64_t first, const uint8_t* headers, int level,
                           Source from, T* out) {
  alignas(64) uint8_t codes[CHUNK];
  if (!unpack_bytes(headers, from, out, codes)) return false;
  Grid<float> g;
  if (ONE) fill_grid(spec, first, level, g);
  Noise noise(stream_key(spec.seed, uint64_t(first / 32) >> 28), first / 32);
  for (int b = 0; b < BLOCKS_PER_CHUNK; ++b) {
    if (headers[b] == RAW) {
      noise.skip(2);
      continue;
    }
    if (!ONE) fill_grid(spec, first + b * BLOCK, level, g);
    headers[b] & 32 ? dequantize_bytes<T, true, ONE>(codes + b * BLOCK, g, noise, out + b * BLOCK)
                    : dequantize_bytes<T, false, ONE>(codes + b * BLOCK, g, noise, out + b * BLOCK);
  }
  return true;
}

}  // namespace bounded
ACTZIP_END

#endif
