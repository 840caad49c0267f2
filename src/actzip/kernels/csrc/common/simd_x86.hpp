// What simd_avx2.hpp and simd_avx512.hpp share: 32 bytes are one register of 256 bits in both.
#pragma once

#include <immintrin.h>

#include "common/core.hpp"

ACTZIP_BEGIN

using Bytes = __m256i;

ACTZIP_INLINE Bytes zero_bytes() { return _mm256_setzero_si256(); }
ACTZIP_INLINE Bytes load_bytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
ACTZIP_INLINE void store_bytes(uint8_t* p, Bytes b) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), b);
}
ACTZIP_INLINE Bytes min_bytes(Bytes a, uint8_t top) { return _mm256_min_epu8(a, _mm256_set1_epi8(char(top))); }
ACTZIP_INLINE Bytes add_bytes(Bytes a, uint8_t n) { return _mm256_adds_epu8(a, _mm256_set1_epi8(char(n))); }

// The least and the largest of 16 signed words. minpos finds the least of eight unsigned ones: with
// 0x8000 turned that is the order of the signed, with 0x7fff the other way round.
ACTZIP_INLINE int16_t first_word(__m128i words, int turn) {
  const __m128i found = _mm_minpos_epu16(_mm_xor_si128(words, _mm_set1_epi16(int16_t(turn))));
  return int16_t(_mm_extract_epi16(found, 0) ^ turn);
}
ACTZIP_INLINE int16_t least_word(__m256i a) {
  return first_word(_mm_min_epi16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)), 0x8000);
}
ACTZIP_INLINE int16_t largest_word(__m256i a) {
  return first_word(_mm_max_epi16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)), 0x7fff);
}

ACTZIP_END
