// entropy::encode_span for the symbols of Bounded, most of which are below 64: their part of the
// table lives in registers, which a permutation reads several times faster than a gather memory.
#pragma once

#include "bounded/wide.hpp"
#include "entropy/rans.hpp"

ACTZIP_BEGIN
namespace bounded {

#ifdef ACTZIP_BOUNDED_WIDE

// The first 64 entries of a table.
struct Entries {
  __m512i e[4];

  ACTZIP_INLINE explicit Entries(const uint32_t* table) {
    for (int k = 0; k < 4; ++k) e[k] = _mm512_load_si512(table + 16 * k);
  }
  ACTZIP_INLINE __m512i at(__m512i s, __mmask16 upper) const {
    const __m512i low = _mm512_permutex2var_epi32(e[0], s, e[1]);
    return _mm512_mask_mov_epi32(low, upper, _mm512_permutex2var_epi32(e[2], s, e[3]));
  }
};

// One step of 16 states, as entropy::encode16 makes it.
ACTZIP_INLINE __m512i step16(__m512i x, __m512i rest, __m512i reciprocal, uint8_t*& at) {
  const __m512i less = _mm512_and_si512(_mm512_srli_epi32(rest, 13), _mm512_set1_epi32(4095));
  const __m512i scale = _mm512_set1_epi32(entropy::SCALE);
  const __m512i top = _mm512_slli_epi32(_mm512_sub_epi32(scale, less), 19);
  const __mmask16 full = _mm512_cmpge_epi32_mask(x, top);
  const int count = __builtin_popcount(full);
  at -= 2 * count;
  const __m256i words = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(full, x));
  _mm256_mask_storeu_epi16(at, __mmask16((1u << count) - 1), words);
  x = _mm512_mask_srli_epi32(x, full, x, 16);
  const __m512i high = entropy::high_product(x, reciprocal);
  const __m512i q = _mm512_srlv_epi32(high, _mm512_srli_epi32(rest, 25));
  const __m512i bias = _mm512_and_si512(rest, _mm512_set1_epi32(8191));
  return _mm512_add_epi32(_mm512_add_epi32(x, bias), _mm512_mullo_epi32(q, less));
}

inline uint8_t* encode_bytes(const uint8_t* symbols, int64_t n, const entropy::EncodeTable& t,
                            uint32_t* states, uint8_t* at) {
  const Entries rest(t.rest), reciprocal(t.reciprocal);
  const __m512i bit = _mm512_set1_epi32(32);
  __m512i x[2] = {_mm512_load_si512(states), _mm512_load_si512(states + 16)};
  for (int64_t i = n - entropy::STATES; i >= 0; i -= entropy::STATES) {
    const __m256i row = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(symbols + i));
    const bool small = _mm256_cmpge_epu8_mask(row, _mm256_set1_epi8(64)) == 0;
    for (int half = 1; half >= 0; --half) {
      if (!small) {
        x[half] = entropy::encode16(symbols + i + 16 * half, t, x[half], at);
        continue;
      }
      const __m128i bytes = half ? _mm256_extracti128_si256(row, 1) : _mm256_castsi256_si128(row);
      const __m512i s = _mm512_cvtepu8_epi32(bytes);
      const __mmask16 upper = _mm512_test_epi32_mask(s, bit);
      x[half] = step16(x[half], rest.at(s, upper), reciprocal.at(s, upper), at);
    }
  }
  _mm512_store_si512(states, x[0]);
  _mm512_store_si512(states + 16, x[1]);
  return at;
}

inline uint8_t* encode_symbols(const uint8_t* symbols, int64_t n, const entropy::EncodeTable& t,
                               entropy::States& states, uint8_t* end) {
  const int64_t whole = n / entropy::STATES * entropy::STATES;
  uint8_t* const at = entropy::encode_some(symbols + whole, int(n - whole), t, states.x, end);
  return encode_bytes(symbols, whole, t, states.x, at);
}

#else

inline uint8_t* encode_symbols(const uint8_t* symbols, int64_t n, const entropy::EncodeTable& t,
                               entropy::States& states, uint8_t* end) {
  return entropy::encode_span(symbols, n, t, states, end);
}

#endif

}  // namespace bounded
ACTZIP_END
