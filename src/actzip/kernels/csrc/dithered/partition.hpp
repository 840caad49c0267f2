// Elements to their contexts and back, a block of 64 at a time.
//
// A span's codes are coded context by context, so each has to find its rank among those of its
// context. Where nearly all are zero only the others are moved: a rank is how many bits the mask of
// the context has below it. Where many are not, all are moved: with AVX-512 by compressing the codes
// of each context, else one after the other.
#pragma once

#include "dithered/marks.hpp"
#include "dithered/quant.hpp"

ACTZIP_BEGIN
namespace dithered {

#ifdef __AVX2__
// The bytes of 64 that are not zero, or that are ESCAPE.
template <bool ESCAPED> ACTZIP_INLINE uint64_t marked(const uint8_t* p) {
#ifdef ACTZIP_DITHERED_WIDE
  const __m512i a = _mm512_loadu_si512(p);
  return ESCAPED ? _mm512_cmpeq_epi8_mask(a, _mm512_set1_epi8(char(ESCAPE))) : _mm512_test_epi8_mask(a, a);
#else
  uint64_t found = 0;
  for (int h = 0; h < 2; ++h) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p) + h);
    const __m256i same = _mm256_cmpeq_epi8(a, ESCAPED ? _mm256_set1_epi8(char(ESCAPE)) : _mm256_setzero_si256());
    found |= uint64_t(uint32_t(_mm256_movemask_epi8(same))) << (32 * h);
  }
  return ESCAPED ? found : ~found;
#endif
}

// The place of bit number r of those that are on.
ACTZIP_INLINE int select_bit(uint64_t mask, int r) {
#ifdef ACTZIP_DITHERED_WIDE
  return __builtin_ctzll(_pdep_u64(uint64_t{1} << r, mask));
#else  // some processors that have no more than AVX2 take hundreds of cycles for that
  int at = 0;
  for (int width = 32; width > 0; width /= 2) {
    const int below = __builtin_popcountll(mask >> at & low_bits(width));
    const bool on = r >= below;
    r -= on ? below : 0;
    at += on ? width : 0;
  }
  return at;
#endif
}
#endif

// Whether one of the 64 bytes of a block is ESCAPE.
ACTZIP_INLINE bool holds_escaped(const uint8_t* byte) {
#ifdef __AVX2__
  return marked<true>(byte) != 0;
#else
  bool found = false;
  for (int i = 0; i < BLOCK; ++i) found |= byte[i] == ESCAPE;
  return found;
#endif
}

// How many of the first n bytes of a block are not zero.
ACTZIP_INLINE int64_t nonzero_of(const uint8_t* byte, int64_t n) {
#ifdef __AVX2__
  return __builtin_popcountll(marked<false>(byte) & low_bits(n));
#else
  int64_t found = 0;
  for (int64_t i = 0; i < n; ++i) found += byte[i] != 0;
  return found;
#endif
}

#ifndef ACTZIP_DITHERED_WIDE
inline bool compresses_bytes() { return false; }
#else
// Zen 4 and Ice Lake compress bytes, faster than a few of them are moved; before them only words of
// 32 bits could be.
#define ACTZIP_VBMI2 __attribute__((target("avx512vbmi2"), noinline))
inline bool compresses_bytes() {
  static const bool found = __builtin_cpu_supports("avx512vbmi2");
  return found;
}

ACTZIP_VBMI2 inline void spread_bytes(const uint8_t* byte, const uint64_t* mask, int count, int64_t blocks,
                                      int64_t* next, uint8_t* parted) {
  for (int64_t b = 0; b < blocks; ++b) {
    const __m512i here = _mm512_loadu_si512(byte + b * BLOCK);
    for (int k = 0; k < count; ++k) {
      const uint64_t these = mask[b * count + k];
      _mm512_storeu_si512(parted + next[k], _mm512_maskz_compress_epi8(these, here));
      next[k] += __builtin_popcountll(these);
    }
  }
}
ACTZIP_VBMI2 inline void collect_bytes(const uint8_t* parted, const uint64_t* mask, int count, int64_t* next,
                                       uint8_t* byte) {
  __m512i found = _mm512_setzero_si512();
  for (int k = 0; k < count; ++k) {
    found = _mm512_mask_expand_epi8(found, mask[k], _mm512_loadu_si512(parted + next[k]));
    next[k] += __builtin_popcountll(mask[k]);
  }
  _mm512_storeu_si512(byte, found);
}
inline void spread_words(const uint8_t* byte, const uint64_t* mask, int count, int64_t blocks, int64_t* next,
                         uint8_t* parted) {
  for (int64_t b = 0; b < blocks; ++b)
    for (int i = 0; i < BLOCK; i += 16) {
      const __m512i here = _mm512_cvtepu8_epi32(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(byte + b * BLOCK + i)));
      for (int k = 0; k < count; ++k) {
        const __mmask16 these = __mmask16(mask[b * count + k] >> i);
        const __m128i low = _mm512_cvtepi32_epi8(_mm512_maskz_compress_epi32(these, here));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(parted + next[k]), low);
        next[k] += __builtin_popcount(these);
      }
    }
}
inline void collect_words(const uint8_t* parted, const uint64_t* mask, int count, int64_t* next, uint8_t* byte) {
  for (int i = 0; i < BLOCK; i += 16) {
    __m512i found = _mm512_setzero_si512();
    for (int k = 0; k < count; ++k) {
      const __mmask16 these = __mmask16(mask[k] >> i);
      const __m128i there = _mm_loadu_si128(reinterpret_cast<const __m128i*>(parted + next[k]));
      found = _mm512_mask_expand_epi32(found, these, _mm512_cvtepu8_epi32(there));
      next[k] += __builtin_popcount(these);
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(byte + i), _mm512_cvtepi32_epi8(found));
  }
}
#endif

// The codes of the n elements of a span to where their contexts are; `few`: nearly all are zero.
inline void spread(const uint8_t* byte, const Marks& m, const Contexts& c, int64_t n, bool few,
                   const Places& places, uint8_t* parted) {
  int64_t next[CONTEXTS];
  for (int k = 0; k < c.count; ++k) next[k] = places.at[k];
  if (c.count == 1) return copy(parted, byte, n);
#ifdef __AVX2__
  if (few && !compresses_bytes()) {
    std::memset(parted, 0, size_t(n + c.count * SLACK));
    for (int64_t b = 0; b * BLOCK < n; ++b) {
      const uint64_t nonzero = marked<false>(byte + b * BLOCK);
      const uint64_t* const mask = m.mask + b * c.count;
      for (int k = 0; k < c.count; ++k) {
        for (uint64_t left = nonzero & mask[k]; left; left &= left - 1) {
          const int i = __builtin_ctzll(left);
          parted[next[k] + __builtin_popcountll(mask[k] & low_bits(i))] = byte[b * BLOCK + i];
        }
        next[k] += __builtin_popcountll(mask[k]);
      }
    }
    return;
  }
#endif
  (void)few;
#ifdef ACTZIP_DITHERED_WIDE
  const auto move = compresses_bytes() ? spread_bytes : spread_words;
  move(byte, m.mask, c.count, ceil_div(n, BLOCK), next, parted);
#else
  for (int64_t i = 0; i < n; ++i) parted[next[m.context[i]]++] = byte[i];
#endif
}

// The way back, one block after the other.
struct Collector {
  const uint8_t* parted;
  const Marks& marks;
  int count;
  int64_t next[CONTEXTS];

  Collector(const uint8_t* from, const Marks& m, const Contexts& c, const Places& places)
      : parted(from), marks(m), count(c.count) {
    for (int k = 0; k < count; ++k) next[k] = places.at[k];
  }
  // The codes of block b, of which n elements are there, with zeros behind them.
  ACTZIP_INLINE void block(int64_t b, int64_t n, uint8_t* byte) {
    if (count == 1) {
      std::memset(byte + n, 0, size_t(BLOCK - n));
      return copy(byte, parted + b * BLOCK, n);
    }
#ifdef ACTZIP_DITHERED_WIDE
    (compresses_bytes() ? collect_bytes : collect_words)(parted, marks.mask + b * count, count, next, byte);
    (void)n;
#else
    std::memset(byte + n, 0, size_t(BLOCK - n));
    for (int64_t i = 0; i < n; ++i) byte[i] = parted[next[marks.context[b * BLOCK + i]]++];
#endif
  }
};

// Bits for the elements of each block whose codes escaped, into zeros.
inline void find_escaped(const uint8_t* parted, const Marks& m, const Contexts& c, int64_t n,
                         const Places& places, uint64_t* escaped) {
  int64_t next[CONTEXTS];
  for (int k = 0; k < c.count; ++k) next[k] = places.at[k];
#ifdef __AVX2__
  for (int k = 0; k < c.count; ++k) {
    int64_t block = 0, before = 0, here = 0;  // elements of the context before the block, and in it
    const auto in_block = [&] { return c.count == 1 ? BLOCK : __builtin_popcountll(m.mask[block * c.count + k]); };
    here = in_block();
    for (int64_t i = 0; i < m.total[k]; i += BLOCK) {
      uint64_t left = marked<true>(parted + next[k] + i) & low_bits(m.total[k] - i);
      for (; left; left &= left - 1) {
        const int64_t place = i + __builtin_ctzll(left);
        while (before + here <= place) before += here, ++block, here = in_block();
        const int r = int(place - before);
        escaped[block] |= uint64_t{1} << (c.count == 1 ? r : select_bit(m.mask[block * c.count + k], r));
      }
    }
  }
  (void)n;
#else
  for (int64_t i = 0; i < n; ++i)
    escaped[i / BLOCK] |= uint64_t(parted[next[m.context[i]]++] == ESCAPE) << (i % BLOCK);
#endif
}

}  // namespace dithered
ACTZIP_END
