// One map of Dual: block averages and what is left of the map without them.
//
// A map is D x H x W (1 for the dimensions that are not there). Sums run in a fixed order: down the
// columns of a block first, then along the row of column sums, so that every backend agrees.
// Zero: averages are those of the non-zero elements, a zero leaves zero and nothing else does.
#pragma once

#include "group/block.hpp"

ACTZIP_BEGIN

// One dimension cut into blocks. Aligned: ceil(size / block) blocks, the last may be short.
// Original: floor(size / k) blocks of k = min(block, size), stretched over the whole dimension.
struct Axis {
  int64_t size, k, blocks;
  bool original;
  static Axis of(int64_t size, int64_t block, bool original) {
    const int64_t k = min_of(block, max_of<int64_t>(size, 1));
    return {size, k, original ? size / k : ceil_div(size, k), original};
  }
  int64_t first(int64_t b) const { return b * k; }
  int64_t end(int64_t b) const { return min_of(size, (b + 1) * k); }
  int64_t length(int64_t b) const { return end(b) - first(b); }
  // where its average stands
  int64_t from(int64_t b) const { return original ? ceil_div(b * size, blocks) : first(b); }
  int64_t to(int64_t b) const { return original ? ceil_div((b + 1) * size, blocks) : end(b); }
  int64_t used() const { return min_of(size, blocks * k); }
};

struct MapShape {
  Axis d, h, w;
  int64_t elements() const { return d.size * h.size * w.size; }
  int64_t averages() const { return d.blocks * h.blocks * w.blocks; }
};

// Whether there are maps, and their elements can be counted.
inline bool sides_fit(int64_t maps, int64_t d, int64_t h, int64_t w) {
  int64_t left = int64_t(1) << 56;
  const int64_t sides[4] = {maps, d, h, w};
  for (int64_t side : sides) {
    if (side < 1 || side > left) return false;
    left /= side;
  }
  return true;
}

template <class R> inline R upper_nearest(R x) {  // ties to even
  using Bits = typename Limits<R>::Bits;
  constexpr Bits low = (Bits(1) << kHalfBits<R>) - 1;
  const Bits bits = bit_cast<Bits>(x);
  return bit_cast<R>((bits + (low >> 1) + (bits >> kHalfBits<R> & 1)) & ~low);
}

// Averages as stored: the upper half of the bits.
template <class R> struct Averages {
  using Half = typename Limits<R>::Half;
  using Bits = typename Limits<R>::Bits;
  uint8_t* data;
  R get(int64_t i) const {
    return bit_cast<R>(Bits(Bits(load_as<Half>(data + i * int64_t(sizeof(Half)))) << kHalfBits<R>));
  }
  void set(int64_t i, R x) const {
    store_as(data + i * int64_t(sizeof(Half)), Half(bit_cast<Bits>(x) >> kHalfBits<R>));
  }
};

// The smallest number above zero.
template <class T> struct Least { static constexpr Real<T> value = Tiny<T>::value; };
template <> struct Least<double> { static constexpr double value = 0x1p-1074; };

inline float magnitude_as(float size, float sign) { return __builtin_copysignf(size, sign); }
inline double magnitude_as(double size, double sign) { return __builtin_copysign(size, sign); }

// x when c is not zero, else +0. By bits, for where loops end in single elements: half of a ReLU's
// elements are zero, and a branch would guess wrong as often.
template <class R> ACTZIP_INLINE R keep_if(R c, R x) {
  using Bits = typename Limits<R>::Bits;
  return bit_cast<R>(bit_cast<Bits>(x) & (Bits(0) - Bits(c != 0)));
}
template <class T> ACTZIP_INLINE Real<T> not_zero(Real<T> x) {
  const Real<T> size = magnitude_as(x, Real<T>(1));
  return magnitude_as(size > Least<T>::value ? size : Least<T>::value, x);
}

// What is left of x without its average.
template <bool Zero, class R> ACTZIP_INLINE R residual(R x, R mean) {
  const R rest = x - mean;
  if (!Zero) return rest;
  // x = mean leaves something far below the rounding of x, but not zero
  const R faint = not_zero<R>(x * (sizeof(R) == 4 ? R(0x1p-30) : R(0x1p-60)));
  return keep_if(x, rest != 0 ? rest : faint);
}

// The way back, to the element's type.
template <class T, bool Zero> ACTZIP_INLINE T restored(Real<T> rest, Real<T> mean) {
  const Real<T> x = bounded<T>(rest + mean);
  return narrow<T>(Zero ? keep_if(rest, not_zero<T>(x)) : x);
}

// The average of `count` elements with this sum, as it is stored.
template <class R> ACTZIP_INLINE R average(R sum, R count) {
  return upper_nearest<R>(count != 0 ? sum / count : R(0));
}
template <class R> ACTZIP_INLINE bool is_sane(R mean) {
  return mean <= Limits<R>::kLargest && mean >= -Limits<R>::kLargest;
}

// Rows never overlap: said so, that the loops become vectors without a check.
template <class T, class R>
ACTZIP_INLINE void add_columns(const T* __restrict row, R* __restrict columns, int64_t n) {
  for (int64_t i = 0; i < n; ++i) columns[i] += widen(row[i]);
}
template <class T, class R>
ACTZIP_INLINE void count_columns(const T* __restrict row, R* __restrict counts, int64_t n) {
  for (int64_t i = 0; i < n; ++i) counts[i] += widen(row[i]) != 0 ? R(1) : R(0);
}
template <bool Zero, class T, class R>
inline void subtract_row(const T* __restrict x, const R* __restrict mean, R* __restrict rest, int64_t n) {
  for (int64_t i = 0; i < n; ++i) rest[i] = residual<Zero, R>(widen(x[i]), mean[i]);
}
template <bool Zero, class T, class R>
ACTZIP_INLINE void add_row(const R* __restrict rest, const R* __restrict mean, T* __restrict x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = restored<T, Zero>(rest[i], mean[i]);
}
// f(i) for i < n; blocks are 8 long as a rule, and a loop of known length has no end to look for.
template <class G> ACTZIP_INLINE void each_of(int64_t n, G&& f) {
  if (n == 8)
    for (int64_t i = 0; i < 8; ++i) f(i);
  else
    for (int64_t i = 0; i < n; ++i) f(i);
}

template <class R> ACTZIP_INLINE R sum_of(const R* x, int64_t n) {
  R sum = 0;
  each_of(n, [&](int64_t i) { sum += x[i]; });
  return sum;
}

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

// f(first element, count, averages spread along these) for stretches of a few whole rows that have
// the same averages. spread: scratch of stretch(m).
inline int64_t stretch(const MapShape& m) { return m.w.size < 48 ? m.h.k * m.w.size : m.w.size; }

// The averages from `line` on, spread along a row.
template <class R>
ACTZIP_INLINE void spread_row(const MapShape& m, const Averages<R>& averages, int64_t line, R* spread) {
  for (int64_t b = 0; b < m.w.blocks; ++b) {
    const R mean = averages.get(line + b);
    R* at = spread + m.w.from(b);
    each_of(m.w.to(b) - m.w.from(b), [&](int64_t i) { at[i] = mean; });
  }
}

template <class R, class G>
inline void each_stretch(const MapShape& m, R* spread, const Averages<R>& averages, G&& f) {
  const int64_t width = m.w.size, few = stretch(m) / width;
  int64_t line = 0;
  for (int64_t bd = 0; bd < m.d.blocks; ++bd)
    for (int64_t d = m.d.from(bd); d < m.d.to(bd); ++d) {
      line = bd * m.h.blocks * m.w.blocks;
      for (int64_t bh = 0; bh < m.h.blocks; ++bh, line += m.w.blocks) {
        spread_row(m, averages, line, spread);
        for (int64_t r = 1; r < few; ++r) std::memcpy(spread + r * width, spread, size_t(width) * sizeof(R));
        for (int64_t h = m.h.from(bh); h < m.h.to(bh); h += few)
          f((d * m.h.size + h) * width, min_of(few, m.h.to(bh) - h) * width, spread);
      }
    }
}

ACTZIP_END
