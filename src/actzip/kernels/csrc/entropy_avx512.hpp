// entropy_rans.hpp with two vectors of 16 states.
#pragma once

ACTZIP_BEGIN
namespace entropy {


inline __m512i high_product(__m512i a, __m512i b) {
  const __m512i even = _mm512_srli_epi64(_mm512_mul_epu32(a, b), 32);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));
  return _mm512_mask_mov_epi32(even, 0xaaaa, odd);
}

inline __m512i encode16(const uint8_t* symbols, const EncodeTable& t, __m512i x, uint8_t*& at) {
  const __m512i s = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(symbols)));
  const __m512i rest = _mm512_i32gather_epi32(s, t.rest, 4);
  const __m512i reciprocal = _mm512_i32gather_epi32(s, t.reciprocal, 4);
  const __m512i less = _mm512_and_si512(_mm512_srli_epi32(rest, 13), _mm512_set1_epi32(4095));
  const __m512i top = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(SCALE), less), 19);
  const __mmask16 full = _mm512_cmpge_epi32_mask(x, top);
  const int count = __builtin_popcount(full);
  at -= 2 * count;
  const __m256i words = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(full, x));
  _mm256_mask_storeu_epi16(at, __mmask16((1u << count) - 1), words);
  x = _mm512_mask_srli_epi32(x, full, x, 16);
  const __m512i q = _mm512_srlv_epi32(high_product(x, reciprocal), _mm512_srli_epi32(rest, 25));
  const __m512i bias = _mm512_and_si512(rest, _mm512_set1_epi32(8191));
  return _mm512_add_epi32(_mm512_add_epi32(x, bias), _mm512_mullo_epi32(q, less));
}

inline uint8_t* encode_rows(const uint8_t* symbols, int64_t n, const EncodeTable& t, uint32_t* x,
                            uint8_t* at) {
  __m512i a = _mm512_load_si512(x), b = _mm512_load_si512(x + 16);
  for (int64_t i = n - STATES; i >= 0; i -= STATES) {
    b = encode16(symbols + i + 16, t, b, at);
    a = encode16(symbols + i, t, a, at);
  }
  _mm512_store_si512(x, a);
  _mm512_store_si512(x + 16, b);
  return at;
}

inline __m512i decode16(uint8_t* symbols, const DecodeTable& t, __m512i x, const uint8_t*& at) {
  const __m512i slot = _mm512_and_si512(x, _mm512_set1_epi32(SCALE - 1));
  const __m512i e = _mm512_i32gather_epi32(slot, t.entry, 4);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(symbols), _mm512_cvtepi32_epi8(e));
  const __m512i bias = _mm512_and_si512(_mm512_srli_epi32(e, 8), _mm512_set1_epi32(4095));
  const __m512i times = _mm512_mullo_epi32(_mm512_srli_epi32(e, 20), _mm512_srli_epi32(x, SCALE_BITS));
  x = _mm512_add_epi32(times, bias);
  const __mmask16 low = _mm512_cmplt_epi32_mask(x, _mm512_set1_epi32(int(LOWEST)));
  const __m512i words =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  const __m512i spread = _mm512_maskz_expand_epi32(low, words);
  at += 2 * __builtin_popcount(low);
  return _mm512_mask_or_epi32(x, low, _mm512_slli_epi32(x, 16), spread);
}

inline int64_t decode_rows(uint8_t* symbols, int64_t n, const DecodeTable& t, uint32_t* x,
                           const uint8_t*& at, const uint8_t* end) {
  __m512i a = _mm512_load_si512(x), b = _mm512_load_si512(x + 16);
  int64_t i = 0;
  for (; i < n && end - at >= 4 * STATES; i += STATES) {
    a = decode16(symbols + i, t, a, at);
    b = decode16(symbols + i + 16, t, b, at);
  }
  _mm512_store_si512(x, a);
  _mm512_store_si512(x + 16, b);
  return i;
}

}  // namespace entropy
ACTZIP_END
