// entropy_rans.hpp with two vectors of 16 states.
#pragma once

ACTZIP_BEGIN
namespace entropy {

ACTZIP_INLINE __m512i high_product(__m512i a, __m512i b) {
  const __m512i even = _mm512_srli_epi64(_mm512_mul_epu32(a, b), 32);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));
  return _mm512_mask_mov_epi32(even, 0xaaaa, odd);
}

// Entries of eight symbols, by loads of their own: two gathers of 16 take longer on Zen 4.
ACTZIP_INLINE __m512i both8(const uint8_t* symbols, const EncodeTable& t) {
  const auto two = [&](int i) {
    return _mm_insert_epi64(_mm_cvtsi64_si128(int64_t(t.both[symbols[i]])), int64_t(t.both[symbols[i + 1]]), 1);
  };
  const __m256i low = _mm256_set_m128i(two(2), two(0)), high = _mm256_set_m128i(two(6), two(4));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

ACTZIP_INLINE __m512i encode16(const uint8_t* symbols, const EncodeTable& t, __m512i x, uint8_t*& at) {
  const __m512i low = both8(symbols, t), high = both8(symbols + 8, t);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i rest = _mm512_permutex2var_epi32(low, even, high);
  const __m512i reciprocal = _mm512_permutex2var_epi32(low, _mm512_add_epi32(even, _mm512_set1_epi32(1)), high);
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

// The entries of four states, by loads of their own: on Zen 4 a gather of 16 takes a fifth longer.
ACTZIP_INLINE __m128i entries4(const uint32_t* table, __m128i index) {
  const auto two = [&](uint64_t i) {
    return _mm_insert_epi32(_mm_cvtsi32_si128(int(table[uint32_t(i)])), int(table[i >> 32]), 1);
  };
  return _mm_unpacklo_epi64(two(uint64_t(_mm_cvtsi128_si64(index))), two(uint64_t(_mm_extract_epi64(index, 1))));
}

ACTZIP_INLINE __m512i entries16(const uint32_t* table, __m512i index) {
  const __m256i low = _mm256_set_m128i(entries4(table, _mm512_extracti32x4_epi32(index, 1)),
                                       entries4(table, _mm512_castsi512_si128(index)));
  const __m256i high = _mm256_set_m128i(entries4(table, _mm512_extracti32x4_epi32(index, 3)),
                                        entries4(table, _mm512_extracti32x4_epi32(index, 2)));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

ACTZIP_INLINE __m512i decode16(uint8_t* symbols, const DecodeTable& t, __m512i x, const uint8_t*& at) {
  const __m512i slot = _mm512_and_si512(x, _mm512_set1_epi32(SCALE - 1));
  const __m512i e = entries16(t.entry, slot);
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

// A span that is being decoded; a copy, as bytes that are stored might be a part of anything else.
struct Lane {
  const uint8_t *at, *end;
  uint8_t* symbols;
  __m512i low, high;
  ACTZIP_INLINE explicit Lane(const Words& w)
      : at(w.at), end(w.end), symbols(w.symbols),
        low(_mm512_load_si512(w.states->x)), high(_mm512_load_si512(w.states->x + 16)) {}
  ACTZIP_INLINE bool has_row() const { return end - at >= 4 * STATES; }
  ACTZIP_INLINE void lower(int64_t i, const DecodeTable& t) { low = decode16(symbols + i, t, low, at); }
  ACTZIP_INLINE void upper(int64_t i, const DecodeTable& t) { high = decode16(symbols + i + 16, t, high, at); }
  ACTZIP_INLINE void back_to(Words& w) const {
    w.at = at;
    _mm512_store_si512(w.states->x, low);
    _mm512_store_si512(w.states->x + 16, high);
  }
};

inline int64_t decode_rows(Words& w, int64_t i, int64_t n, const DecodeTable& t) {
  Lane lane(w);
  for (; i < n && lane.has_row(); i += STATES) {
    lane.lower(i, t);
    lane.upper(i, t);
  }
  lane.back_to(w);
  return i;
}

inline int64_t decode_rows(Words& a, Words& b, int64_t n, const DecodeTable& t) {
  Lane one(a), other(b);
  int64_t i = 0;
  for (; i < n && one.has_row() && other.has_row(); i += STATES) {
    one.lower(i, t);
    other.lower(i, t);
    one.upper(i, t);
    other.upper(i, t);
  }
  one.back_to(a);
  other.back_to(b);
  return i;
}

}  // namespace entropy
ACTZIP_END
