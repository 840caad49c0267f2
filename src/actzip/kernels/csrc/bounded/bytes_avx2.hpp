// bytes.hpp's steps with AVX2: 64 integers in eight registers, their bytes in two.
#pragma once

#include "bounded/pack.hpp"
#include "bounded/quant.hpp"

#if defined(__AVX2__) && defined(__BMI2__) && !defined(__AVX512F__)
#define ACTZIP_BOUNDED_BYTES

ACTZIP_BEGIN
namespace bounded {

constexpr bool kSideBySide = false;  // how put_bitmap puts codes
constexpr int EIGHTS = BLOCK / 8;

struct ByteBlock { __m256i half[2]; };

// The quantized integers of 64 values, and which of these are not zero.
struct Integers {
  __m256i q[EIGHTS];
  uint64_t nonzero;
};

// What the differences of the next block need of this one: its last integers.
struct Before {
  __m256i q[2];
  uint32_t nonzero;
  Before() = default;
  ACTZIP_INLINE explicit Before(const Integers& v) : q{v.q[6], v.q[7]}, nonzero(uint32_t(v.nonzero >> 48)) {}
};

template <class T>
ACTZIP_INLINE Integers quantize64(const T* x, F inv, Noise& noise) {
  Integers out{};
  for (int h = 0; h < 2; ++h) {
    const Block block = load32(x + 32 * h), v = noise.next();
    for (int k = 0; k < kVectors; ++k)
      out.q[kVectors * h + k] = _mm256_cvtps_epi32(vadd(vmul(block.v[k], inv), v.v[k]));
    out.nonzero |= uint64_t{nonzero32(block.v)} << 32 * h;
  }
  return out;
}

ACTZIP_INLINE __m256i or_of(const Integers& v) {
  __m256i all = v.q[0];
  for (int k = 1; k < EIGHTS; ++k) all = _mm256_or_si256(all, v.q[k]);
  return all;
}
ACTZIP_INLINE bool any_negative(const Integers& v) { return _mm256_movemask_ps(as_float(or_of(v))) != 0; }

// zigzag(q) ^ 1 of each.
ACTZIP_INLINE Integers signed_codes(const Integers& v) {
  Integers c;
  c.nonzero = v.nonzero;
  for (int k = 0; k < EIGHTS; ++k) {
    const __m256i zigzag = _mm256_xor_si256(_mm256_slli_epi32(v.q[k], 1), _mm256_srai_epi32(v.q[k], 31));
    c.q[k] = _mm256_xor_si256(zigzag, _mm256_set1_epi32(1));
  }
  return c;
}

ACTZIP_INLINE bool fit_bytes(const Integers& c) { return _mm256_testz_si256(or_of(c), _mm256_set1_epi32(~255)); }

// 255 in the bytes of the bits that are set.
ACTZIP_INLINE __m256i byte_mask(uint32_t bits) { return _mm256_cmpgt_epi8(or_plane(zero_bytes(), bits, 0), zero_bytes()); }

// Codes that are not negative as bytes, 255 when they are larger; 0 for zeros.
ACTZIP_INLINE ByteBlock to_bytes(const Integers& c) {
  ByteBlock bytes;
  for (int h = 0; h < 2; ++h) {
    const __m256i low = _mm256_packs_epi32(c.q[4 * h], c.q[4 * h + 1]);
    const __m256i high = _mm256_packs_epi32(c.q[4 * h + 2], c.q[4 * h + 3]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i all = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
    bytes.half[h] = _mm256_and_si256(all, byte_mask(uint32_t(c.nonzero >> 32 * h)));
  }
  return bytes;
}

ACTZIP_INLINE int largest_byte(const ByteBlock& bytes) {
  const __m256i half = _mm256_max_epu8(bytes.half[0], bytes.half[1]);
  const __m128i part = _mm_max_epu8(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  // minpos finds the least of eight words: of the complement, the smaller byte of each two
  const __m128i turned = _mm_xor_si128(part, _mm_set1_epi8(-1));
  const __m128i least = _mm_minpos_epu16(_mm_min_epu8(turned, _mm_srli_epi16(turned, 8)));
  return 255 - (_mm_cvtsi128_si32(least) & 255);
}

// The symbols of 16 integers as words.
ACTZIP_INLINE __m256i symbol_words(const __m256i* q, uint32_t nonzero) {
  const __m256i bit = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192,
                                        16384, int16_t(-32768));
  const __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(q[0], q[1]), 0xd8);
  const __m256i s = _mm256_add_epi16(_mm256_add_epi16(w, _mm256_set1_epi16(1)), _mm256_srai_epi16(w, 15));
  const __m256i here = _mm256_and_si256(_mm256_set1_epi16(int16_t(nonzero)), bit);
  return _mm256_and_si256(s, _mm256_cmpeq_epi16(here, bit));
}

// Zigzag differences to the symbol before, their low bytes; returns the bits that they take.
ACTZIP_INLINE int put_differences(const Integers& v, const Before& before, uint8_t* to) {
  __m256i last = symbol_words(before.q, before.nonzero), all = _mm256_setzero_si256();
  for (int k = 0; k < 4; ++k) {
    const __m256i s = symbol_words(v.q + 2 * k, uint32_t(v.nonzero >> 16 * k));
    const __m256i one_before = _mm256_alignr_epi8(s, _mm256_permute2x128_si256(last, s, 0x21), 14);
    const __m256i up = _mm256_sub_epi16(s, one_before);
    const __m256i d = _mm256_xor_si256(_mm256_slli_epi16(up, 1), _mm256_srai_epi16(up, 15));
    const __m256i bytes = _mm256_packus_epi16(_mm256_and_si256(d, _mm256_set1_epi16(255)), _mm256_setzero_si256());
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16 * k),
                     _mm256_castsi256_si128(_mm256_permute4x64_epi64(bytes, 0x08)));
    all = _mm256_or_si256(all, d);
    last = s;
  }
  const __m128i part = _mm_or_si128(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  uint64_t word = uint64_t(_mm_cvtsi128_si64(part)) | uint64_t(_mm_extract_epi64(part, 1));
  word |= word >> 32;
  return bit_width(uint32_t((word | word >> 16) & 0xffff));
}

ACTZIP_INLINE void put_plain(const ByteBlock& codes, uint64_t nonzero, uint8_t* to) {
  for (int h = 0; h < 2; ++h)  // less -1 where it is not zero
    store_bytes(to + 32 * h, _mm256_sub_epi8(codes.half[h], byte_mask(uint32_t(nonzero >> 32 * h))));
}

ACTZIP_INLINE void put_bitmap(const Integers&, const ByteBlock& codes, uint8_t* to) {
  store_bytes(to, codes.half[0]);
  store_bytes(to + 32, codes.half[1]);
}

// The largest |x / step| of a chunk of 16-bit values, or infinity for one that has no finite
// product: scaling keeps the order, so the largest |x| will do.
template <class T>
inline float wide_ratio(const Spec& spec, const T* x) {
  Grid<float> g;
  fill_grid(spec, 0, 0, g);
  uint16_t largest = 0;
  for (int i = 0; i < CHUNK; ++i) largest = max_of<uint16_t>(largest, uint16_t(x[i].bits & 0x7fff));
  return widen(T{largest}) * g.inv[0];
}

}  // namespace bounded
ACTZIP_END

#endif
