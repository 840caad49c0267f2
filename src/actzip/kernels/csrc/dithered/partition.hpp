// Elements to their contexts and back, a block at a time: which context each has, how many each has,
// and their codes context by context.
#pragma once

#include "dithered/quant.hpp"

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#define ACTZIP_DITHERED_WIDE
#include <immintrin.h>
#endif

ACTZIP_BEGIN
namespace dithered {

constexpr int CONTEXTS = 16;

// The context of each bin of v. Where contexts are ranges of v, or of |v|, as every encoder makes
// them, an element's context is how many edges its bin has passed: a gather takes three times longer.
struct Bins {
  const uint8_t* of;
  bool folded = true, ranges = true;  // of |v|; of either
  int edges = 0;
  uint8_t edge[CONTEXTS] = {};

  explicit Bins(const uint8_t* context) : of(context) {
    for (int b = 0; b < BINS; ++b) folded &= of[b] == of[BINS - 1 - b];
    const int first = folded ? BINS / 2 : 0;
    ranges = of[first] == 0;
    for (int b = first + 1; b < BINS && ranges; ++b) {
      ranges = of[b] >= of[b - 1] && of[b] < CONTEXTS;
      for (int k = of[b - 1]; ranges && k < of[b]; ++k) edge[edges++] = uint8_t(b - first);
    }
  }
};

// Contexts of 64 elements with this dither.
inline void contexts_of(const float* v, const Bins& bins, uint8_t* to) {
#ifdef ACTZIP_DITHERED_WIDE
  if (bins.ranges) {
    alignas(64) uint8_t bytes[BLOCK];
    for (int i = 0; i < BLOCK; i += 16) {
      const __m512 shifted = _mm512_add_ps(_mm512_load_ps(v + i), _mm512_set1_ps(0.5f));
      const __m512i bin = _mm512_cvttps_epi32(_mm512_mul_ps(shifted, _mm512_set1_ps(float(BINS))));
      _mm_store_si128(reinterpret_cast<__m128i*>(bytes + i), _mm512_cvtepi32_epi8(bin));
    }
    __m512i size = _mm512_load_si512(bytes);
    if (bins.folded) {  // 128, 129, … and 127, 126, … are 0, 1, …
      const __m512i other = _mm512_sub_epi8(_mm512_set1_epi8(127), size);
      const __m512i upper = _mm512_sub_epi8(size, _mm512_set1_epi8(char(128)));
      size = _mm512_mask_mov_epi8(other, _mm512_movepi8_mask(size), upper);
    }
    __m512i found = _mm512_setzero_si512();
    for (int k = 0; k < bins.edges; ++k) {
      const __mmask64 past = _mm512_cmpge_epu8_mask(size, _mm512_set1_epi8(char(bins.edge[k])));
      found = _mm512_mask_sub_epi8(found, past, found, _mm512_set1_epi8(-1));
    }
    _mm512_storeu_si512(to, found);
    return;
  }
#endif
  for (int i = 0; i < BLOCK; ++i) to[i] = bins.of[bin_of(v[i])];
}

// Where the elements of each context begin when they lie one context after the other.
struct Places {
  int64_t at[CONTEXTS + 1];

  Places(const uint8_t* context, int64_t n, int64_t count) {
    int64_t found[CONTEXTS] = {};
    int64_t i = 0;
#ifdef ACTZIP_DITHERED_WIDE
    for (; i + 64 <= n; i += 64) {
      const __m512i here = _mm512_loadu_si512(context + i);
      for (int64_t k = 0; k < count; ++k)
        found[k] += __builtin_popcountll(_mm512_cmpeq_epi8_mask(here, _mm512_set1_epi8(char(k))));
    }
#else
    (void)count;
#endif
    for (; i < n; ++i) ++found[context[i]];
    at[0] = 0;
    for (int64_t k = 0; k < CONTEXTS; ++k) at[k + 1] = at[k] + found[k];
  }
};

// Where the next code of each context is.
struct Cursor {
  int64_t at[CONTEXTS];
  explicit Cursor(const Places& places) {
    for (int k = 0; k < CONTEXTS; ++k) at[k] = places.at[k];
  }
};

// Codes of `count` elements, as bytes of which 255 stands for all above, to where their contexts
// are.
inline void spread(const uint32_t* code, const uint8_t* context, int64_t count, int64_t contexts,
                   Cursor& next, uint8_t* bytes) {
  int64_t i = 0;
#ifdef ACTZIP_DITHERED_WIDE
  for (; i + 16 <= count; i += 16) {
    const __m512i here = _mm512_loadu_si512(code + i);
    const __m128i mine = _mm_loadu_si128(reinterpret_cast<const __m128i*>(context + i));
    for (int64_t k = 0; k < contexts; ++k) {
      const __mmask16 these = _mm_cmpeq_epi8_mask(mine, _mm_set1_epi8(char(k)));
      const int many = __builtin_popcount(these);
      const __m128i low = _mm512_cvtusepi32_epi8(_mm512_maskz_compress_epi32(these, here));
      _mm_mask_storeu_epi8(bytes + next.at[k], __mmask16((1u << many) - 1), low);
      next.at[k] += many;
    }
  }
#else
  (void)contexts;
#endif
  for (; i < count; ++i) bytes[next.at[context[i]]++] = uint8_t(min_of<uint32_t>(code[i], 255));
}

// The way back; `bytes` may be read 16 behind the last. Returns the largest code.
inline uint32_t collect(const uint8_t* bytes, const uint8_t* context, int64_t count,
                        int64_t contexts, Cursor& next, uint32_t* code) {
  int64_t i = 0;
  uint32_t most = 0;
#ifdef ACTZIP_DITHERED_WIDE
  __m512i all = _mm512_setzero_si512();
  for (; i + 16 <= count; i += 16) {
    const __m128i mine = _mm_loadu_si128(reinterpret_cast<const __m128i*>(context + i));
    __m512i found = _mm512_setzero_si512();
    for (int64_t k = 0; k < contexts; ++k) {
      const __mmask16 these = _mm_cmpeq_epi8_mask(mine, _mm_set1_epi8(char(k)));
      const __m128i there = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + next.at[k]));
      found = _mm512_mask_expand_epi32(found, these, _mm512_cvtepu8_epi32(there));
      next.at[k] += __builtin_popcount(these);
    }
    all = _mm512_max_epu32(all, found);
    _mm512_storeu_si512(code + i, found);
  }
  most = _mm512_reduce_max_epu32(all);
#else
  (void)contexts;
#endif
  for (; i < count; ++i) {
    code[i] = bytes[next.at[context[i]]++];
    most = max_of(most, code[i]);
  }
  return most;
}

}  // namespace dithered
ACTZIP_END
