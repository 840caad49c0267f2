// entropy_rans.hpp with four vectors of 8 states.
#pragma once

ACTZIP_BEGIN
namespace entropy {

// For each mask of 8 states: the order that moves the marked ones to the front, and back.
struct Order {
  uint8_t gather[8], spread[8];
};

struct Orders {
  Order of[256];
};

constexpr Orders make_orders() {
  Orders t{};
  for (int mask = 0; mask < 256; ++mask) {
    int count = 0;
    for (int j = 0; j < 8; ++j) {
      t.of[mask].spread[j] = uint8_t(count & 7);
      if (mask >> j & 1) t.of[mask].gather[count++] = uint8_t(j);
    }
  }
  return t;
}

inline constexpr Orders ORDERS = make_orders();

inline __m256i reorder(__m256i v, const uint8_t* order) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(order));
  return _mm256_permutevar8x32_epi32(v, _mm256_cvtepu8_epi32(bytes));
}

inline __m256i gather8(const uint32_t* table, __m256i index) {
  return _mm256_i32gather_epi32(reinterpret_cast<const int*>(table), index, 4);
}

inline __m256i high_product(__m256i a, __m256i b) {
  const __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(a, b), 32);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
  return _mm256_blend_epi32(even, odd, 0xaa);
}

inline __m256i encode8(const uint8_t* symbols, const EncodeTable& t, __m256i x, uint8_t*& at) {
  const __m256i s = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(symbols)));
  const __m256i rest = gather8(t.rest, s), reciprocal = gather8(t.reciprocal, s);
  const __m256i less = _mm256_and_si256(_mm256_srli_epi32(rest, 13), _mm256_set1_epi32(4095));
  const __m256i top = _mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(SCALE), less), 19);
  const __m256i fits = _mm256_cmpgt_epi32(top, x);
  const int full = 255 & ~_mm256_movemask_ps(_mm256_castsi256_ps(fits));
  const int count = __builtin_popcount(unsigned(full));
  const __m256i low = _mm256_and_si256(x, _mm256_set1_epi32(0xffff));
  const __m256i front = reorder(low, ORDERS.of[full].gather);
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(front),
                                         _mm256_extracti128_si256(front, 1));
  alignas(16) uint8_t bytes[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(bytes), words);
  at -= 2 * count;
  std::memcpy(at, bytes, size_t(2 * count));
  x = _mm256_blendv_epi8(_mm256_srli_epi32(x, 16), x, fits);
  const __m256i q = _mm256_srlv_epi32(high_product(x, reciprocal), _mm256_srli_epi32(rest, 25));
  const __m256i bias = _mm256_and_si256(rest, _mm256_set1_epi32(8191));
  return _mm256_add_epi32(_mm256_add_epi32(x, bias), _mm256_mullo_epi32(q, less));
}

inline uint8_t* encode_rows(const uint8_t* symbols, int64_t n, const EncodeTable& t, uint32_t* x,
                            uint8_t* at) {
  __m256i state[4];
  for (int k = 0; k < 4; ++k) state[k] = _mm256_load_si256(reinterpret_cast<__m256i*>(x + 8 * k));
  for (int64_t i = n - STATES; i >= 0; i -= STATES)
    for (int k = 3; k >= 0; --k) state[k] = encode8(symbols + i + 8 * k, t, state[k], at);
  for (int k = 0; k < 4; ++k) _mm256_store_si256(reinterpret_cast<__m256i*>(x + 8 * k), state[k]);
  return at;
}

inline __m256i decode8(uint8_t* symbols, const DecodeTable& t, __m256i x, const uint8_t*& at) {
  const __m256i e = gather8(t.entry, _mm256_and_si256(x, _mm256_set1_epi32(SCALE - 1)));
  const __m256i bytes = _mm256_and_si256(e, _mm256_set1_epi32(255));
  const __m128i half = _mm_packus_epi32(_mm256_castsi256_si128(bytes),
                                        _mm256_extracti128_si256(bytes, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(symbols), _mm_packus_epi16(half, half));
  const __m256i bias = _mm256_and_si256(_mm256_srli_epi32(e, 8), _mm256_set1_epi32(4095));
  x = _mm256_mullo_epi32(_mm256_srli_epi32(e, 20), _mm256_srli_epi32(x, SCALE_BITS));
  x = _mm256_add_epi32(x, bias);
  const __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32(int(LOWEST)), x);
  const int mask = _mm256_movemask_ps(_mm256_castsi256_ps(low));
  const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  const __m256i spread = reorder(words, ORDERS.of[mask].spread);
  at += 2 * __builtin_popcount(unsigned(mask));
  const __m256i refilled = _mm256_or_si256(_mm256_slli_epi32(x, 16), spread);
  return _mm256_blendv_epi8(x, refilled, low);
}

inline int64_t decode_rows(Words& w, int64_t i, int64_t n, const DecodeTable& t) {
  uint32_t* const x = w.states->x;
  __m256i state[4];
  for (int k = 0; k < 4; ++k) state[k] = _mm256_load_si256(reinterpret_cast<__m256i*>(x + 8 * k));
  for (; i < n && w.end - w.at >= 4 * STATES; i += STATES)
    for (int k = 0; k < 4; ++k) state[k] = decode8(w.symbols + i + 8 * k, t, state[k], w.at);
  for (int k = 0; k < 4; ++k) _mm256_store_si256(reinterpret_cast<__m256i*>(x + 8 * k), state[k]);
  return i;
}

// Four vectors of one span keep AVX2 busy.
inline int64_t decode_rows(Words&, Words&, int64_t, const DecodeTable&) { return 0; }

}  // namespace entropy
ACTZIP_END
