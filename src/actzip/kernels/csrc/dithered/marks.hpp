// Which elements of a span are of which context, and where the codes of each context begin.
#pragma once

#include "dithered/grid.hpp"
#include "dithered/tables.hpp"
#include "entropy/rans.hpp"

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#define ACTZIP_DITHERED_WIDE
#endif

ACTZIP_BEGIN
namespace dithered {

using dithered_tables::Contexts;
using dithered_tables::CONTEXTS;
using dithered_tables::ESCAPE;
using entropy::SPAN;

constexpr int64_t SPAN_BLOCKS = SPAN / BLOCK;
constexpr int64_t SLACK = 64;                              // that vectors reach behind an end
constexpr int64_t PARTED = SPAN + (CONTEXTS + 1) * SLACK;  // codes context by context

inline uint64_t low_bits(int64_t n) { return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; }

// Which elements of a span are of which context.
struct Marks {
#ifdef __AVX2__
  uint64_t mask[SPAN_BLOCKS * CONTEXTS];  // of each block, one per context
#endif
#ifndef ACTZIP_DITHERED_WIDE
  uint8_t context[SPAN];
#endif
  int64_t total[CONTEXTS];

  void clear() {
    for (int64_t& t : total) t = 0;
  }
  // The block whose dither is in these bins, of which n elements are there.
  ACTZIP_INLINE void see(const Contexts& c, const uint8_t* bin, int64_t block, int64_t n);
};

#ifdef ACTZIP_DITHERED_WIDE
ACTZIP_INLINE void Marks::see(const Contexts& c, const uint8_t* bin, int64_t block, int64_t n) {
  __m512i size = _mm512_load_si512(bin);
  if (c.folded) {  // 128, 129, … and 127, 126, … are 0, 1, …
    const __m512i other = _mm512_sub_epi8(_mm512_set1_epi8(127), size);
    const __m512i upper = _mm512_sub_epi8(size, _mm512_set1_epi8(char(128)));
    size = _mm512_mask_mov_epi8(other, _mm512_movepi8_mask(size), upper);
  }
  uint64_t* const to = mask + block * c.count;
  uint64_t here = low_bits(n);
  const int last = c.count - 1;
  for (int k = 0; k < last; ++k) {
    const uint64_t past = here & _mm512_cmpge_epu8_mask(size, _mm512_set1_epi8(char(c.edge[k])));
    to[k] = here & ~past;
    total[k] += __builtin_popcountll(to[k]);
    here = past;
  }
  to[last] = here;
  total[last] += __builtin_popcountll(here);
}
#elif defined(__AVX2__)
ACTZIP_INLINE void Marks::see(const Contexts& c, const uint8_t* bin, int64_t block, int64_t n) {
  __m256i size[2], found[2];
  for (int h = 0; h < 2; ++h) {
    size[h] = _mm256_load_si256(reinterpret_cast<const __m256i*>(bin) + h);
    found[h] = _mm256_setzero_si256();
    if (c.folded) {  // turned, these are signed: h, or ~h where that is below zero
      size[h] = _mm256_xor_si256(size[h], _mm256_set1_epi8(char(128)));
      size[h] = _mm256_xor_si256(size[h], _mm256_cmpgt_epi8(_mm256_setzero_si256(), size[h]));
    }
  }
  uint64_t* const to = mask + block * c.count;
  uint64_t here = low_bits(n);
  const int last = c.count - 1;
  for (int k = 0; k < last; ++k) {
    const __m256i edge = _mm256_set1_epi8(char(c.edge[k]));
    uint64_t past = 0;
    for (int h = 0; h < 2; ++h) {
      const __m256i ge = _mm256_cmpeq_epi8(_mm256_max_epu8(size[h], edge), size[h]);
      found[h] = _mm256_sub_epi8(found[h], ge);
      past |= uint64_t(uint32_t(_mm256_movemask_epi8(ge))) << (32 * h);
    }
    past &= here;
    to[k] = here & ~past;
    total[k] += __builtin_popcountll(to[k]);
    here = past;
  }
  to[last] = here;
  total[last] += __builtin_popcountll(here);
  for (int h = 0; h < 2; ++h)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(context + block * BLOCK) + h, found[h]);
}
#else
ACTZIP_INLINE void Marks::see(const Contexts& c, const uint8_t* bin, int64_t block, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const int size = !c.folded ? bin[i] : bin[i] < 128 ? 127 - bin[i] : bin[i] - 128;
    int found = 0;
    for (int k = 0; k + 1 < c.count; ++k) found += size >= c.edge[k];
    context[block * BLOCK + i] = uint8_t(found);
    ++total[found];
  }
}
#endif

// Where the codes of each context begin; between them there is room for vectors.
struct Places {
  int64_t at[CONTEXTS];
  Places(const Marks& m, int count) {
    int64_t next = 0;
    for (int k = 0; k < count; ++k) at[k] = next, next += m.total[k] + SLACK;
  }
};

}  // namespace dithered
ACTZIP_END
