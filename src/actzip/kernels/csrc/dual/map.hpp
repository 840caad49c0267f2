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
