// Maps of Dual whose channels are innermost in memory, side by side: vectors run over channels.
//
// A tile is `width` channels of one sample; position s of the map is at x + s * stride. Every sum
// runs in the order of map.hpp, so that averages and ranges are those of a map alone.
#pragma once

#include "dual/map.hpp"
#include "group/layout.hpp"

ACTZIP_BEGIN

// A thread's memory for one tile.
template <class R> struct Bench {
  R *rest;              // what is left of the tile: position by position, `width` channels each
  R *columns, *filled;  // sums and counts of one row of blocks, position by position
  R *means;             // averages of the tile: block by block
  R *counts;            // elements of a block in each channel
  R *lo, *hi, *factor;  // of each channel; lo and factor go on periodically for a block of 32
  R *odd;               // of each channel: not zero when there is a NaN or too large an average
  static int64_t size(const MapShape& m, int64_t width) {
    return width * (m.elements() + 2 * m.w.size + m.averages()) + 5 * (width + 32);
  }
  Bench(void* all, const MapShape& m, int64_t width) {
    R* at = static_cast<R*>(all) + thread_number() * size(m, width);
    const auto take = [&](int64_t n) { R* p = at; at += n; return p; };
    rest = take(width * m.elements());
    columns = take(width * m.w.size);
    filled = take(width * m.w.size);
    means = take(width * m.averages());
    lo = take(width + 32);
    hi = take(width + 32);
    factor = take(width + 32);
    counts = take(width + 32);
    odd = take(width + 32);
  }
};

template <class R> ACTZIP_INLINE void fill_row(R* x, int64_t n, R value) {
  for (int64_t i = 0; i < n; ++i) x[i] = value;
}

// Averages of a row of blocks from the sums (and counts) of its columns.
template <bool Zero, class R>
ACTZIP_INLINE void average_blocks(const MapShape& m, int64_t rows, int64_t width, const Bench<R>& own, R* means) {
  for (int64_t b = 0; b < m.w.blocks; ++b, means += width) {
    R* counts = own.counts;
    fill_row(means, width, R(0));
    fill_row(counts, width, Zero ? R(0) : R(rows * m.w.length(b)));
    for (int64_t i = m.w.first(b); i < m.w.end(b); ++i) {
      add_columns(own.columns + i * width, means, width);
      if (Zero) add_columns(own.filled + i * width, counts, width);
    }
    for (int64_t c = 0; c < width; ++c) means[c] = average(means[c], counts[c]);
  }
}

template <bool Zero, class R>
ACTZIP_INLINE void average_tile(const R* x, const MapShape& m, int64_t stride, int64_t width, const Bench<R>& own) {
  R* means = own.means;
  for (int64_t bd = 0; bd < m.d.blocks; ++bd)
    for (int64_t bh = 0; bh < m.h.blocks; ++bh, means += m.w.blocks * width) {
      fill_row(own.columns, m.w.used() * width, R(0));
      if (Zero) fill_row(own.filled, m.w.used() * width, R(0));
      for (int64_t d = m.d.first(bd); d < m.d.end(bd); ++d)
        for (int64_t h = m.h.first(bh); h < m.h.end(bh); ++h)
          for (int64_t w = 0; w < m.w.used(); ++w) {
            const R* at = x + ((d * m.h.size + h) * m.w.size + w) * stride;
            add_columns(at, own.columns + w * width, width);
            if (Zero) count_columns(at, own.filled + w * width, width);
          }
      average_blocks<Zero>(m, m.d.length(bd) * m.h.length(bh), width, own, means);
    }
}

// f(position, the averages of the channels there) for each position of the map.
template <class R, class G>
ACTZIP_INLINE void each_position(const MapShape& m, int64_t width, const R* means, G&& f) {
  for (int64_t bd = 0; bd < m.d.blocks; ++bd)
    for (int64_t d = m.d.from(bd); d < m.d.to(bd); ++d)
      for (int64_t bh = 0; bh < m.h.blocks; ++bh)
        for (int64_t h = m.h.from(bh); h < m.h.to(bh); ++h)
          for (int64_t b = 0; b < m.w.blocks; ++b) {
            const R* mean = means + ((bd * m.h.blocks + bh) * m.w.blocks + b) * width;
            const int64_t row = (d * m.h.size + h) * m.w.size;
            for (int64_t w = m.w.from(b); w < m.w.to(b); ++w) f(row + w, mean);
          }
}

// What is left at one position, and the ranges of it. A minimum passes over NaNs, so these are
// noted apart. x may be where `rest` is.
template <bool Zero, class R>
ACTZIP_INLINE void split_row(const R* x, const R* __restrict mean, R* rest, R* __restrict lo,
                             R* __restrict hi, R* __restrict odd, int64_t n) {
  const R inf = R(__builtin_inf());
#pragma GCC ivdep
  for (int64_t c = 0; c < n; ++c) {
    const R a = residual<Zero, R>(x[c], mean[c]);
    const R low = Zero && a == 0 ? inf : a, high = Zero && a == 0 ? -inf : a;
    rest[c] = a;
    lo[c] = low < lo[c] ? low : lo[c];
    hi[c] = high > hi[c] ? high : hi[c];
    odd[c] += a != a ? R(1) : R(0);
  }
}

// Averages, what is left, and the ranges of it.
template <bool Zero, class R>
ACTZIP_INLINE void split_width(const R* x, const MapShape& m, int64_t stride, int64_t width, const Bench<R>& own) {
  average_tile<Zero>(x, m, stride, width, own);
  fill_row(own.lo, width, R(__builtin_inf()));
  fill_row(own.hi, width, -R(__builtin_inf()));
  fill_row(own.odd, width, R(0));
  for (int64_t b = 0; b < m.averages(); ++b)
    for (int64_t c = 0; c < width; ++c) own.odd[c] += is_sane(own.means[b * width + c]) ? R(0) : R(1);
  each_position(m, width, static_cast<const R*>(own.means), [&](int64_t s, const R* mean) {
    split_row<Zero>(x + s * stride, mean, own.rest + s * width, own.lo, own.hi, own.odd, width);
  });
}

// f(width of a tile): the usual one as a constant, which makes the loops short. Doubles are rare.
template <class R, class G> ACTZIP_INLINE void with_width(int64_t width, G&& f) {
#ifndef ACTZIP_COMPACT
  if (sizeof(R) == 4 && width == 32) return f(int64_t(32));
#endif
  f(width);
}

template <bool Zero, class R>
ACTZIP_ONCE void split_tile(const R* x, const MapShape& m, int64_t stride, int64_t width, const Bench<R>& own) {
  with_width<R>(width, [&](int64_t w) ACTZIP_LAMBDA { split_width<Zero>(x, m, stride, w, own); });
}

// 16-bit elements are widened first: one copy of all that for every type.
template <bool Zero, class T>
inline void split_tile_of(const T* x, const MapShape& m, int64_t stride, int64_t width, const Bench<Real<T>>& own) {
  if constexpr (sizeof(T) == 2) {
    for (int64_t s = 0; s < m.elements(); ++s)
      if (width == 32)
        store32(own.rest + s * 32, load32(x + s * stride));
      else
        for (int64_t c = 0; c < width; ++c) own.rest[s * width + c] = widen(x[s * stride + c]);
    split_tile<Zero>(static_cast<const float*>(own.rest), m, width, width, own);
  } else {
    split_tile<Zero>(x, m, stride, width, own);
  }
}

// The way back.
template <bool Zero, class T, class R>
ACTZIP_INLINE void join_tile(T* to, const MapShape& m, int64_t stride, int64_t width, const Bench<R>& own) {
  each_position(m, width, static_cast<const R*>(own.means), [&](int64_t s, const R* mean) {
    add_row<Zero>(static_cast<const R*>(own.rest) + s * width, mean, to + s * stride, width);
  });
}

// Metadata of channel c of the tile, from its range.
template <class R> inline Meta<R> meta_of(const Bench<R>& own, int64_t c, int levels) {
  using Bits = typename Limits<R>::Bits;
  const R lo = own.lo[c], hi = own.hi[c];
  const bool any = !(lo > hi);
  const R size = max_of(lo < 0 ? -lo : lo, hi < 0 ? -hi : hi) + R(0);  // + 0: no negative zero
  if (own.odd[c] != 0) return {0, 0, true};
  return make_meta<R>(Range<R>{lo, hi, any ? bit_cast<Bits>(size) : 0, any}, levels);
}

// lo and factor of the tile's channels, repeated far enough for a block of 32 that starts anywhere.
template <class R> inline void go_on(const Bench<R>& own, int64_t width) {
  for (int64_t c = width; c < width + 32; ++c) {
    own.lo[c] = own.lo[c - width];
    own.factor[c] = own.factor[c - width];
  }
}

ACTZIP_END
