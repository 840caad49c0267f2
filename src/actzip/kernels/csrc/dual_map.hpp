// One map of Dual: block averages and what is left of the map without them.
//
// A map is D x H x W (1 for the dimensions that are not there). Sums run in a fixed order: down the
// columns of a block first, then along the row of column sums, so that every backend agrees.
#pragma once

#include "group_block.hpp"

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
  int64_t used() const { return min_of(size, blocks * k); }
  int64_t block_of(int64_t i) const { return original ? i * blocks / size : i / k; }
};

struct MapShape {
  Axis d, h, w;
  int64_t elements() const { return d.size * h.size * w.size; }
  int64_t averages() const { return d.blocks * h.blocks * w.blocks; }
};

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

// Rows never overlap: said so, that the loops become vectors without a check.
template <class T, class R>
inline void add_columns(const T* __restrict row, R* __restrict columns, int64_t n) {
  for (int64_t i = 0; i < n; ++i) columns[i] += widen(row[i]);
}
template <class T, class R>
inline void subtract_row(const T* __restrict x, const R* __restrict mean, R* __restrict rest, int64_t n) {
  for (int64_t i = 0; i < n; ++i) rest[i] = widen(x[i]) - mean[i];
}
template <class T, class R>
inline void add_row(const R* __restrict rest, const R* __restrict mean, T* __restrict x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = narrow<T>(bounded<T>(rest[i] + mean[i]));
}

// Averages of one map; columns: scratch of w.size. False when one is not finite or too large.
template <class T, class R>
inline bool average_map(const T* x, const MapShape& m, R* columns, const Averages<R>& out) {
  bool sane = true;
  int64_t at = 0;
  for (int64_t bd = 0; bd < m.d.blocks; ++bd)
    for (int64_t bh = 0; bh < m.h.blocks; ++bh) {
      const int64_t used = m.w.used();
      for (int64_t i = 0; i < used; ++i) columns[i] = 0;
      for (int64_t d = m.d.first(bd); d < m.d.end(bd); ++d)
        for (int64_t h = m.h.first(bh); h < m.h.end(bh); ++h) {
          add_columns(x + (d * m.h.size + h) * m.w.size, columns, used);
        }
      const int64_t rows = (m.d.end(bd) - m.d.first(bd)) * (m.h.end(bh) - m.h.first(bh));
      for (int64_t b = 0; b < m.w.blocks; ++b) {
        R sum = 0;
        for (int64_t i = m.w.first(b); i < m.w.end(b); ++i) sum += columns[i];
        const R mean = upper_nearest<R>(sum / R(rows * (m.w.end(b) - m.w.first(b))));
        sane &= mean <= Limits<R>::kLargest && mean >= -Limits<R>::kLargest;
        out.set(at++, mean);
      }
    }
  return sane;
}

// f(first element of a row, the averages spread along that row) for each row of the map.
template <class R, class G>
inline void each_row(const MapShape& m, R* spread, const Averages<R>& averages, G&& f) {
  int64_t held = -1;
  for (int64_t d = 0; d < m.d.size; ++d)
    for (int64_t h = 0; h < m.h.size; ++h) {
      const int64_t line = (m.d.block_of(d) * m.h.blocks + m.h.block_of(h)) * m.w.blocks;
      if (line != held) {
        if (m.w.original)
          for (int64_t i = 0; i < m.w.size; ++i) spread[i] = averages.get(line + m.w.block_of(i));
        else
          for (int64_t b = 0; b < m.w.blocks; ++b) {
            const R mean = averages.get(line + b);
            for (int64_t i = m.w.first(b); i < m.w.end(b); ++i) spread[i] = mean;
          }
        held = line;
      }
      f((d * m.h.size + h) * m.w.size, spread);
    }
}

ACTZIP_END
