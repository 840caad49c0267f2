// The block averages of one map of Dual.
#pragma once

#include "dual/map.hpp"

ACTZIP_BEGIN

// Column sums run in steps of this many columns unless that would go beyond the end of the tensor;
// what they read beyond a row is never used.
constexpr int64_t kStep = 16;
inline int64_t in_steps(int64_t n) { return ceil_div(n, kStep) * kStep; }

// Adds rows of n elements to the columns, and counts those that are not zero.
template <bool Zero, class T, class R>
inline void take_rows(const T* x, int64_t rows, int64_t width, R* columns, R* counts, int64_t n) {
  for (; rows > 0; --rows, x += width) {
    add_columns(x, columns, n);
    if (Zero) count_columns(x, counts, n);
  }
}
// The same for a few vectors of columns, with sums in registers.
template <bool Zero, int Vectors, class T>
ACTZIP_INLINE void take_vectors(const T* x, int64_t rows, int64_t width, float* columns, float* counts) {
  F sum[Vectors], count[Vectors];
  for (int k = 0; k < Vectors; ++k) {
    sum[k] = load(columns + k * kLanes);
    if (Zero) count[k] = load(counts + k * kLanes);
  }
  for (; rows > 0; --rows, x += width)
    for (int k = 0; k < Vectors; ++k) {
      const F v = load(x + k * kLanes);
      sum[k] = vadd(sum[k], v);
      if (Zero) count[k] = vadd(count[k], where_nonzero(v, set1(1)));
    }
  for (int k = 0; k < Vectors; ++k) {
    store(columns + k * kLanes, sum[k]);
    if (Zero) store(counts + k * kLanes, count[k]);
  }
}
// Rows of n elements, in steps.
template <bool Zero, class T>
inline void take_steps(const T* x, int64_t rows, int64_t width, float* columns, float* counts, int64_t n) {
  constexpr int each = int(kStep) / kLanes;
#ifdef ACTZIP_COMPACT
  for (int64_t i = 0; i < n; i += kStep)
    take_vectors<Zero, each>(x + i, rows, width, columns + i, counts + i);
#else
  for (int64_t i = 0; i < n; i += 4 * kStep) {
    const auto take = [&](auto take_some) { take_some(x + i, rows, width, columns + i, counts + i); };
    switch ((n - i) / kStep) {
      case 1: take(take_vectors<Zero, each, T>); break;
      case 2: take(take_vectors<Zero, 2 * each, T>); break;
      case 3: take(take_vectors<Zero, 3 * each, T>); break;
      default: take(take_vectors<Zero, 4 * each, T>);
    }
  }
#endif
}

// The averages of `count` blocks, 8 at most, of 8 columns each, from the columns' sums and their
// numbers of elements; false when one is not finite or too large.
#ifdef __AVX2__
struct Eight {
  __m256 of[8];
  // Column j of every block in of[j].
  ACTZIP_INLINE Eight(const float* columns, int64_t count) {
    __m256 r[8], p[8];
    for (int b = 0; b < 8; ++b) r[b] = b < count ? _mm256_loadu_ps(columns + 8 * b) : _mm256_setzero_ps();
    for (int b = 0; b < 8; b += 2) {
      p[b] = _mm256_unpacklo_ps(r[b], r[b + 1]);
      p[b + 1] = _mm256_unpackhi_ps(r[b], r[b + 1]);
    }
    for (int b = 0; b < 8; b += 4) {
      r[b] = _mm256_shuffle_ps(p[b], p[b + 2], 0x44);
      r[b + 1] = _mm256_shuffle_ps(p[b], p[b + 2], 0xee);
      r[b + 2] = _mm256_shuffle_ps(p[b + 1], p[b + 3], 0x44);
      r[b + 3] = _mm256_shuffle_ps(p[b + 1], p[b + 3], 0xee);
    }
    for (int j = 0; j < 4; ++j) {
      of[j] = _mm256_permute2f128_ps(r[j], r[j + 4], 0x20);
      of[j + 4] = _mm256_permute2f128_ps(r[j], r[j + 4], 0x31);
    }
  }
  ACTZIP_INLINE __m256 sum() const {
    __m256 all = of[0];
    for (int j = 1; j < 8; ++j) all = _mm256_add_ps(all, of[j]);
    return all;
  }
};

inline bool average_eight(const float* columns, const float* counts, float elements, int64_t count,
                          uint16_t* out) {
  const __m256 number = counts ? Eight(counts, count).sum() : _mm256_set1_ps(elements);
  const __m256 some = _mm256_cmp_ps(number, _mm256_setzero_ps(), _CMP_NEQ_UQ);
  const __m256 mean = _mm256_and_ps(some, _mm256_div_ps(Eight(columns, count).sum(), number));
  const __m256i bits = _mm256_castps_si256(mean), upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i half = _mm256_srli_epi32(up, 16);
  const __m256 stored = _mm256_castsi256_ps(_mm256_slli_epi32(half, 16));
  const __m256 size = _mm256_and_ps(stored, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
  const __m256 insane = _mm256_cmp_ps(size, _mm256_set1_ps(Limits<float>::kLargest), _CMP_NLE_UQ);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(packed));
  return (_mm256_movemask_ps(insane) & ((1 << count) - 1)) == 0;
}
#endif

// Averages of one map; columns: scratch of 2 * in_steps(w.size); end: of the tensor.
// False when one is not finite or too large.
template <bool Zero, class T, class R>
inline bool average_map(const T* x, const T* end, const MapShape& m, R* columns, const Averages<R>& out) {
  bool sane = true;
  int64_t at = 0;
  const int64_t used = m.w.used();
  R* counts = columns + in_steps(m.w.size);
  for (int64_t bd = 0; bd < m.d.blocks; ++bd)
    for (int64_t bh = 0; bh < m.h.blocks; ++bh) {
      [[maybe_unused]] const int64_t line = at;
      for (int64_t i = 0; i < in_steps(used); ++i) columns[i] = counts[i] = 0;
      const int64_t rows = m.h.length(bh);
      for (int64_t d = m.d.first(bd); d < m.d.end(bd); ++d) {
        const T* from = x + (d * m.h.size + m.h.first(bh)) * m.w.size;
        const bool steps = end - from >= (rows - 1) * m.w.size + in_steps(used);
        if constexpr (sizeof(R) == 4) {
          if (steps) take_steps<Zero>(from, rows, m.w.size, columns, counts, in_steps(used));
        }
        if (sizeof(R) != 4 || !steps) take_rows<Zero>(from, rows, m.w.size, columns, counts, used);
      }
      int64_t b = 0;
#ifdef __AVX2__
      if constexpr (sizeof(R) == 4)
        if (m.w.k == 8 && used == 8 * m.w.blocks)
          for (; b < m.w.blocks; b += 8, at = line + min_of(b, m.w.blocks)) {
            uint16_t found[8];
            const int64_t count = min_of<int64_t>(8, m.w.blocks - b);
            sane &= average_eight(columns + 8 * b, Zero ? counts + 8 * b : nullptr,
                                  float(m.d.length(bd) * rows * 8), count, found);
            std::memcpy(out.data + at * 2, found, size_t(count) * 2);
          }
#endif
      for (; b < m.w.blocks; ++b) {
        const int64_t first = m.w.first(b), length = m.w.length(b);
        const R count = Zero ? sum_of(counts + first, length) : R(m.d.length(bd) * rows * length);
        const R mean = average(sum_of(columns + first, length), count);
        sane &= is_sane(mean);
        out.set(at++, mean);
      }
    }
  return sane;
}

ACTZIP_END
