// bytes.hpp's steps with AVX-512: 64 integers in four registers, their bytes in one.
#pragma once

#include "bounded/wide_encode.hpp"

#ifdef ACTZIP_BOUNDED_WIDE
#define ACTZIP_BOUNDED_BYTES

ACTZIP_BEGIN
namespace bounded {

constexpr bool kSideBySide = true;  // how put_bitmap puts codes

using ByteBlock = __m512i;

// The quantized integers of 64 values, and which of these are not zero.
struct Integers {
  __m512i q[VECTORS];
  uint64_t nonzero;
};

// What the differences of the next block need of this one: its last integers.
struct Before {
  __m512i q[2];
  __mmask32 nonzero;
  Before() = default;
  ACTZIP_INLINE explicit Before(const Integers& v)
      : q{v.q[2], v.q[3]}, nonzero(__mmask32(v.nonzero >> 32)) {}
};

template <class T>
ACTZIP_INLINE Integers quantize64(const T* x, F inv, Noise& noise) {
  Integers out;
  uint32_t nonzero[2];
  for (int h = 0; h < 2; ++h) {
    const Block block = load32(x + 32 * h), v = noise.next();
    for (int k = 0; k < kVectors; ++k)
      out.q[kVectors * h + k] = _mm512_cvtps_epi32(vadd(vmul(block.v[k], inv), v.v[k]));
    nonzero[h] = nonzero32(block.v);
  }
  out.nonzero = _mm512_kunpackd(nonzero[1], nonzero[0]);
  return out;
}

ACTZIP_INLINE bool any_negative(const Integers& v) { return _mm512_movepi32_mask(or_of(v.q)) != 0; }

// zigzag(q) ^ 1 of each.
ACTZIP_INLINE Integers signed_codes(const Integers& v) {
  Integers c;
  c.nonzero = v.nonzero;
  for (int k = 0; k < VECTORS; ++k)
    c.q[k] = _mm512_ternarylogic_epi32(_mm512_slli_epi32(v.q[k], 1), _mm512_srai_epi32(v.q[k], 31),
                                       _mm512_set1_epi32(1), 0x96);
  return c;
}

ACTZIP_INLINE bool fit_bytes(const Integers& c) {
  return _mm512_test_epi32_mask(or_of(c.q), _mm512_set1_epi32(~255)) == 0;
}

// Codes that are not negative as bytes, 255 when they are larger; 0 for zeros.
ACTZIP_INLINE ByteBlock to_bytes(const Integers& c) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i low = _mm512_packs_epi32(c.q[0], c.q[1]), high = _mm512_packs_epi32(c.q[2], c.q[3]);
  const __m512i bytes = _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high));
  return _mm512_maskz_mov_epi8(c.nonzero, bytes);
}

ACTZIP_INLINE int largest_byte(ByteBlock bytes) {
  const __m256i half = _mm256_max_epu8(_mm512_castsi512_si256(bytes), _mm512_extracti64x4_epi64(bytes, 1));
  const __m128i part = _mm_max_epu8(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  // minpos finds the least of eight words: of the complement, the smaller byte of each two
  const __m128i turned = _mm_xor_si128(part, _mm_set1_epi8(-1));
  const __m128i least = _mm_minpos_epu16(_mm_min_epu8(turned, _mm_srli_epi16(turned, 8)));
  return 255 - (_mm_cvtsi128_si32(least) & 255);
}

// The symbols of 32 integers as words.
ACTZIP_INLINE __m512i symbol_words(const __m512i* q, __mmask32 nonzero) {
  const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  const __m512i w = _mm512_permutexvar_epi64(order, _mm512_packs_epi32(q[0], q[1]));
  const __m512i next = _mm512_add_epi16(w, _mm512_set1_epi16(1));
  return _mm512_maskz_add_epi16(nonzero, next, _mm512_srai_epi16(w, 15));
}

ACTZIP_INLINE int width_of_words(__m512i words) {
  const __m256i half = _mm256_or_si256(_mm512_castsi512_si256(words), _mm512_extracti64x4_epi64(words, 1));
  const __m128i part = _mm_or_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  uint64_t word = uint64_t(_mm_cvtsi128_si64(part)) | uint64_t(_mm_extract_epi64(part, 1));
  word |= word >> 32;
  return bit_width(uint32_t((word | word >> 16) & 0xffff));
}

alignas(64) static constexpr uint16_t kOneBefore[32] = {31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41,
                                                        42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52,
                                                        53, 54, 55, 56, 57, 58, 59, 60, 61, 62};

// Zigzag differences to the symbol before, their low bytes; returns the bits that they take.
ACTZIP_INLINE int put_differences(const Integers& v, const Before& before, uint8_t* to) {
  const __m512i index = _mm512_load_si512(kOneBefore);
  __m512i last = symbol_words(before.q, before.nonzero), all = _mm512_setzero_si512();
  for (int h = 0; h < 2; ++h) {
    const __m512i s = symbol_words(v.q + 2 * h, __mmask32(v.nonzero >> 32 * h));
    const __m512i up = _mm512_sub_epi16(s, _mm512_permutex2var_epi16(last, index, s));
    const __m512i d = _mm512_xor_si512(_mm512_slli_epi16(up, 1), _mm512_srai_epi16(up, 15));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32 * h), _mm512_cvtepi16_epi8(d));
    all = _mm512_or_si512(all, d);
    last = s;
  }
  return width_of_words(all);
}

ACTZIP_INLINE void put_plain(ByteBlock codes, uint64_t nonzero, uint8_t* to) {
  _mm512_storeu_si512(to, _mm512_maskz_add_epi8(nonzero, codes, _mm512_set1_epi8(1)));
}

ACTZIP_INLINE void put_bitmap(const Integers& c, ByteBlock, uint8_t* to) { put_codes(c.q, c.nonzero, to); }

}  // namespace bounded
ACTZIP_END

#endif
