// Several groups of codes at once to their symbols, the sums of code k times base^k, and back.
#pragma once

#include "dithered/partition.hpp"

#ifdef __AVX2__

ACTZIP_BEGIN
namespace dithered {

// base^k in byte k.
template <int G> constexpr int64_t powers_of() {
  int64_t found = 0;
  for (int64_t k = 0, power = 1; k < G; ++k, power *= dithered_tables::base_of(G)) found |= power << (8 * k);
  return found;
}

#ifdef ACTZIP_DITHERED_WIDE
constexpr int VECTOR = 64;
// Groups that are joined at once, from the bytes of a vector that may all be read.
template <int G> constexpr int TOGETHER = G == 2 ? 32 : G == 3 || G == 4 ? 16 : 8;

ACTZIP_INLINE bool all_below(const uint8_t* codes, int count, int base) {
  const __mmask64 large = _mm512_cmpge_epu8_mask(_mm512_loadu_si512(codes), _mm512_set1_epi8(char(base)));
  return (large & low_bits(count)) == 0;
}
template <int G> ACTZIP_INLINE void join(const uint8_t* codes, uint8_t* symbols) {
  const __m512i here = _mm512_loadu_si512(codes), ones = _mm512_set1_epi16(1);
  constexpr int64_t powers = powers_of<G>();
  const auto pairs = [](__m512i a, int64_t by) { return _mm512_maddubs_epi16(a, _mm512_set1_epi64(by)); };
  if constexpr (G == 8) {
    store_as(symbols, uint64_t(_mm512_test_epi8_mask(here, here)));
  } else if constexpr (G == 2) {
    const __m512i found = pairs(here, powers * 0x0001000100010001);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(symbols), _mm512_cvtepi16_epi8(found));
  } else if constexpr (G == 5) {  // two groups to each 16 bytes, then one to each eight
    const __m512i tens = _mm512_permutexvar_epi16(
        _mm512_set_epi16(19, 19, 19, 19, 18, 17, 16, 15, 14, 14, 14, 14, 13, 12, 11, 10,  //
                         9, 9, 9, 9, 8, 7, 6, 5, 4, 4, 4, 4, 3, 2, 1, 0),
        here);
    const __m512i apart =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, -1, -1, -1, 5, 6, 7, 8, 9, -1, -1, -1));
    const __m512i halves = _mm512_madd_epi16(pairs(_mm512_shuffle_epi8(tens, apart), powers), ones);
    const __m512i found = _mm512_add_epi32(halves, _mm512_srli_epi64(halves, 32));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(symbols), _mm512_cvtepi64_epi8(found));
  } else {
    __m512i fours = here;
    if constexpr (G == 3) {  // four groups to each 16 bytes, then one to each four
      const __m512i twelves = _mm512_permutexvar_epi32(
          _mm512_setr_epi32(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11), here);
      fours = _mm512_shuffle_epi8(twelves, _mm512_broadcast_i32x4(_mm_setr_epi8(
                                               0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1)));
    }
    const __m512i found = _mm512_madd_epi16(pairs(fours, powers | powers << 32), ones);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(symbols), _mm512_cvtepi32_epi8(found));
  }
}
// The codes of as many symbols as a vector holds, where a code has bits of its own in them.
template <int G> ACTZIP_INLINE void part(const uint8_t* symbols, uint8_t* codes) {
  const __m512i escape = _mm512_set1_epi8(char(ESCAPE));
  __m512i found;
  if constexpr (G == 8) {
    const __m128i here = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(symbols));
    const __mmask8 lost = __mmask8(_mm_cmpeq_epi8_mask(here, _mm_set1_epi8(char(ESCAPE))));
    found = _mm512_maskz_set1_epi8(load_as<uint64_t>(symbols), 1);
    found = _mm512_mask_mov_epi64(found, lost, escape);
  } else if constexpr (G == 2) {
    const __m512i here = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(symbols)));
    const __mmask32 lost = _mm512_cmpeq_epi16_mask(here, _mm512_set1_epi16(ESCAPE));
    found = _mm512_and_si512(_mm512_or_si512(here, _mm512_slli_epi16(here, 4)), _mm512_set1_epi8(15));
    found = _mm512_mask_mov_epi16(found, lost, escape);
  } else {
    const __m512i here = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(symbols)));
    const __mmask16 lost = _mm512_cmpeq_epi32_mask(here, _mm512_set1_epi32(ESCAPE));
    const __m512i halves = _mm512_and_si512(_mm512_or_si512(here, _mm512_slli_epi32(here, 12)),
                                            _mm512_set1_epi32(0x000f000f));
    found = _mm512_and_si512(_mm512_or_si512(halves, _mm512_slli_epi32(halves, 6)), _mm512_set1_epi8(3));
    found = _mm512_mask_mov_epi32(found, lost, escape);
  }
  _mm512_storeu_si512(codes, found);
}
#else
constexpr int VECTOR = 32;
template <int G> constexpr int TOGETHER = G == 2 ? 16 : G == 3 || G == 4 ? 8 : 4;

ACTZIP_INLINE bool all_below(const uint8_t* codes, int count, int base) {
  const __m256i here = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
  const __m256i large = _mm256_cmpeq_epi8(_mm256_max_epu8(here, _mm256_set1_epi8(char(base))), here);
  return (uint32_t(_mm256_movemask_epi8(large)) & uint32_t(low_bits(count))) == 0;
}
template <int G> ACTZIP_INLINE void join(const uint8_t* codes, uint8_t* symbols) {
  // the groups of each half, from where they begin
  const auto at = [&](int byte) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + byte)); };
  constexpr int half = TOGETHER<G> / 2 * G;
  const __m256i here = _mm256_set_m128i(at(half), at(0)), ones = _mm256_set1_epi16(1);
  constexpr int64_t powers = powers_of<G>();
  const auto pairs = [](__m256i a, int64_t by) { return _mm256_maddubs_epi16(a, _mm256_set1_epi64x(by)); };
  const auto apart = [](__m256i a, __m128i from) {
    return _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(from));
  };
  // the low byte of each element, in order
  const auto bytes_of = [&](__m256i a, __m128i from) {
    const __m256i low = apart(a, from);
    return _mm_unpacklo_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  };
  if constexpr (G == 8) {
    const __m256i zero = _mm256_cmpeq_epi8(here, _mm256_setzero_si256());
    store_as(symbols, ~uint32_t(_mm256_movemask_epi8(zero)));
  } else if constexpr (G == 2) {
    const __m256i found = pairs(here, powers * 0x0001000100010001);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(found, found), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(symbols), _mm256_castsi256_si128(packed));
  } else if constexpr (G == 5) {
    const __m256i eights = apart(here, _mm_setr_epi8(0, 1, 2, 3, 4, -1, -1, -1, 5, 6, 7, 8, 9, -1, -1, -1));
    const __m256i halves = _mm256_madd_epi16(pairs(eights, powers), ones);
    const __m256i found = _mm256_add_epi32(halves, _mm256_srli_epi64(halves, 32));
    const __m128i both = bytes_of(found, _mm_setr_epi8(0, 8, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
    store_as(symbols, uint32_t(_mm_cvtsi128_si64(_mm_shuffle_epi8(
                          both, _mm_setr_epi8(0, 1, 4, 5, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1)))));
  } else {
    __m256i fours = here;
    if constexpr (G == 3)
      fours = apart(here, _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1));
    const __m256i found = _mm256_madd_epi16(pairs(fours, powers | powers << 32), ones);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(symbols),
                     bytes_of(found, _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1)));
  }
}
template <int G> ACTZIP_INLINE void part(const uint8_t* symbols, uint8_t* codes) {
  __m256i found, lost;
  if constexpr (G == 8) {  // the byte of its symbol to each code, of which one bit is looked at
    const __m256i here = _mm256_set1_epi32(int(load_as<uint32_t>(symbols)));
    const __m256i spread = _mm256_shuffle_epi8(
        here, _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
    const __m256i bits = _mm256_set1_epi64x(int64_t(0x8040201008040201));
    found = _mm256_abs_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(spread, bits), bits));
    lost = _mm256_cmpeq_epi8(spread, _mm256_set1_epi8(char(ESCAPE)));
  } else if constexpr (G == 2) {
    const __m256i here = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(symbols)));
    lost = _mm256_cmpeq_epi16(here, _mm256_set1_epi16(ESCAPE));
    found = _mm256_and_si256(_mm256_or_si256(here, _mm256_slli_epi16(here, 4)), _mm256_set1_epi8(15));
  } else {
    const __m256i here = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(symbols)));
    lost = _mm256_cmpeq_epi32(here, _mm256_set1_epi32(ESCAPE));
    const __m256i halves = _mm256_and_si256(_mm256_or_si256(here, _mm256_slli_epi32(here, 12)),
                                            _mm256_set1_epi32(0x000f000f));
    found = _mm256_and_si256(_mm256_or_si256(halves, _mm256_slli_epi32(halves, 6)), _mm256_set1_epi8(3));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), _mm256_or_si256(found, lost));
}
#endif

}  // namespace dithered
ACTZIP_END

#endif
