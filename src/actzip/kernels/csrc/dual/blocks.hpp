// Maps of whole blocks of 32, such as 56 x 56: averages are taken off and put back in registers,
// block by block, instead of row by row in memory. Operation by operation the same.
#pragma once

#include "dual/map.hpp"
#include "group/run.hpp"

ACTZIP_BEGIN

// Whether the rows that share their averages are whole blocks, everywhere in the map.
inline bool is_in_blocks(const MapShape& m) {
  bool whole = true;
  for (int64_t b = 0; b < m.h.blocks; ++b) whole &= (m.h.to(b) - m.h.from(b)) * m.w.size % 32 == 0;
  return whole;
}

// Averages spread along a row, and on from its begin: a block's are next to each other, wherever in
// a row it begins.
inline int64_t row_and_on(const MapShape& m) { return m.w.size + 32; }

// f(first element, where its averages are spread) for each block of the map.
template <class G>
ACTZIP_INLINE void each_block(const MapShape& m, float* spread, const Averages<float>& averages, G&& f) {
  const int64_t width = m.w.size;
  int64_t i = 0;
  for (int64_t bd = 0; bd < m.d.blocks; ++bd)
    for (int64_t d = m.d.from(bd); d < m.d.to(bd); ++d)
      for (int64_t bh = 0; bh < m.h.blocks; ++bh) {
        spread_row(m, averages, (bd * m.h.blocks + bh) * m.w.blocks, spread);
        for (int64_t k = 0; k < 32; ++k) spread[width + k] = spread[k];
        const int64_t end = i + (m.h.to(bh) - m.h.from(bh)) * width;
        for (int64_t column = 0; i < end; i += 32) {
          f(i, spread + column);
          for (column += 32; column >= width;) column -= width;
        }
      }
}

// residual<Zero> of a block.
template <bool Zero> ACTZIP_INLINE Block residuals(const Block& x, const Block& mean) {
  Block rest = map(x, mean, [](F a, F b) { return vsub(a, b); });
  if (Zero)
    for (int k = 0; k < kVectors; ++k) {
      const F faint = apart_from_zero(mask_nonzero(x.v[k]), vmul(x.v[k], set1(0x1p-30f)), set1(Tiny<float>::value));
      const F instead = vsub(faint, where_nonzero(rest.v[k], faint));
      rest.v[k] = where_nonzero(x.v[k], vor(rest.v[k], instead));
    }
  return rest;
}

// restored<T, Zero> of a block.
template <class T, bool Zero> ACTZIP_INLINE Block restored(const Block& rest, const Block& mean) {
  Block x = map(rest, mean, [](F a, F b) { return into_range<T>(vadd(a, b)); });
  if (Zero)
    for (int k = 0; k < kVectors; ++k)
      x.v[k] = apart_from_zero(mask_nonzero(rest.v[k]), x.v[k], set1(Tiny<T>::value));
  return x;
}

// What is left of a map without its averages, and the range of that. The next map is read ahead.
template <bool Zero, class T>
inline Range<float> subtract_map(const T* x, const MapShape& m, const Averages<float>& mean,
                                 float* spread, float* rest) {
  SeenFloats<Zero> seen;
  const int64_t next = m.elements();
  each_block(m, spread, mean, [&](int64_t i, const float* means) {
    for (int64_t k = 0; k < 32; k += 64 / int64_t(sizeof(T))) __builtin_prefetch(x + next + i + k, 0, 2);
    const Block left = residuals<Zero>(load32(x + i), load32(means));
    seen.see(left);
    store32(rest + i, left);
  });
  return seen.range();
}

// A map from its codes and averages.
template <class B, bool Zero, bool Subtract, class T>
void decode_map(const uint8_t* in, B bits, Pair<float> of, Noise& dither, const MapShape& m,
                       const Averages<float>& mean, float* spread, bool stream, T* x) {
  const Block lo = spread32(of.lo), step = spread32(of.factor);
  Noise noise = dither;
  each_block(m, spread, mean, [&](int64_t i, const float* means) {
    const Block rest = decode_whole<float, Zero, Subtract>(bits, in + i / 8 * bits, lo, step, noise);
    const Block block = restored<T, Zero>(rest, load32(means));
    stream ? stream32(x + i, block) : store32(x + i, block);
  });
  dither = noise;
}

ACTZIP_END
