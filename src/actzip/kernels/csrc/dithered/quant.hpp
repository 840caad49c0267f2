// Dithered: values to codes and back, a block of 64 at a time; the twin of dithered_grid.py.
//
// r = round(x / step + v), decoded (r - v) step; codes 0, 1, 2, … for r = 0, s, -s, 2s, … with s the
// sign of v. With sides the distances from the origin are coded so: 2r above it, 2r + 1 elsewhere.
#pragma once

#include "bounded/quant.hpp"

ACTZIP_BEGIN
namespace dithered {

using bounded::BLOCK;
using bounded::CHUNK;
using bounded::copy;

constexpr int BINS = 256;  // of v
constexpr int64_t BLOCKS_PER_CHUNK = CHUNK / BLOCK;

// eb and low: bounds per channel, of values above the origin and of the others; without sides eb
// holds for all and the other three are not read.
struct Spec {
  int64_t n;
  const uint8_t *eb, *low, *origin, *above;
  int64_t channels, inner;
  uint64_t seed;
  bool sides;
};

inline bool valid(const Spec& s) { return s.n >= 0 && s.channels >= 1 && s.inner >= 1; }

template <class R>
struct Grid {
  alignas(64) R eb[BLOCK], step[BLOCK], inv[BLOCK];
  alignas(64) R low[BLOCK], low_step[BLOCK], low_inv[BLOCK], origin[BLOCK], above[BLOCK];
  int level = -1;  // and the channel that all 64 are of: filled for them already
  int64_t channel = -1;
};

// The grid of the 64 values from global index `start`, as bounded::fill_grid.
template <class R>
inline void fill_grid(const Spec& spec, int64_t start, int level, Grid<R>& g) {
  const bool one = spec.channels == 1;
  int64_t channel = one ? 0 : start / spec.inner % spec.channels;
  int64_t left = one ? BLOCK : spec.inner - start % spec.inner;
  const bool whole = left >= BLOCK;
  if (whole && g.level == level && g.channel == channel) return;
  g.level = whole ? level : -1;
  g.channel = channel;
  for (int i = 0; i < BLOCK;) {
    const int64_t at = channel * int64_t(sizeof(R));
    const int end = int(min_of<int64_t>(BLOCK, i + left));
    const R eb = load_as<R>(spec.eb + at);
    for (int j = i; j < end; ++j) g.eb[j] = eb;
    if (spec.sides) {
      const R low = load_as<R>(spec.low + at), origin = load_as<R>(spec.origin + at);
      const R above = load_as<R>(spec.above + at);
      for (int j = i; j < end; ++j) g.low[j] = low, g.origin[j] = origin, g.above[j] = above;
    }
    i = end;
    left = spec.inner;
    if (++channel == spec.channels) channel = 0;
  }
  const R scale = R(bounded::SCALE[level]);
  for (int i = 0; i < BLOCK; ++i) g.step[i] = (g.eb[i] * 2) * scale;
  for (int i = 0; i < BLOCK; ++i) g.inv[i] = R(1) / g.step[i];
  if (!spec.sides) return;
  for (int i = 0; i < BLOCK; ++i) g.low_step[i] = (g.low[i] * 2) * scale;
  for (int i = 0; i < BLOCK; ++i) g.low_inv[i] = R(1) / g.low_step[i];
}

inline void fill_dither(const Spec& spec, int64_t start, float* v) {
  const Key key = stream_key(spec.seed, uint64_t(start / 32) >> 28);
  spill(dither_block(key, start / 32), v);
  spill(dither_block(key, start / 32 + 1), v + 32);
}

ACTZIP_INLINE int bin_of(float v) { return int((v + 0.5f) * float(BINS)); }

// The largest |x / step| of n values and `so_far`, as bits; infinity and NaN are left out.
template <class R>
inline bounded::IntOf<R> largest_ratio(const Spec& spec, const R* x, int n, const Grid<R>& g,
                                       bounded::IntOf<R> so_far) {
  using I = bounded::IntOf<R>;
  const I infinity = bounded::magnitude_bits(R(__builtin_inf()));
  for (int i = 0; i < n; ++i) {
    R t = x[i] * g.inv[i];
    if (spec.sides)
      t = x[i] > g.origin[i] ? (x[i] - g.origin[i]) * g.inv[i] : (g.origin[i] - x[i]) * g.low_inv[i];
    const I bits = bounded::magnitude_bits(t);
    so_far = max_of(so_far, bits < infinity ? bits : I(0));
  }
  return so_far;
}

// What a value on its side decodes to.
template <class T>
ACTZIP_INLINE Real<T> on_side(Real<T> found, bool above, Real<T> origin, Real<T> least) {
  const Real<T> y = widen(narrow<T>(above ? origin + found : origin - found));
  if (above) return y > least ? y : least;
  return y < origin ? y : origin;
}

// Codes of one block; false when any of n values fails the check.
template <class T>
inline bool quantize(const Spec& spec, const Real<T>* x, int n, const Grid<Real<T>>& g,
                     const float* v, uint32_t* code) {
  using R = Real<T>;
  using I = bounded::IntOf<R>;
  using U = typename bounded::Magic<R>::Unsigned;
  constexpr R magic = bounded::Magic<R>::value;
  const I cap = bounded::magnitude_bits(R(bounded::Limits<T>::cap)) - 1;
  I beyond = 0;
  if (!spec.sides) {
    for (int i = 0; i < n; ++i) {
      const R t = x[i] * g.inv[i];
      const R shifted = (t + R(v[i])) + magic;
      const R back = widen(narrow<T>(((shifted - magic) - R(v[i])) * g.step[i]));
      beyond |= bounded::magnitude_bits(g.eb[i]) - bounded::magnitude_bits(x[i] - back);
      beyond |= cap - bounded::magnitude_bits(t);
      // unsigned: what is wrong with a value that fails the check may wrap around
      const uint32_t q = uint32_t(bit_cast<U>(shifted) - bit_cast<U>(magic));
      const uint32_t folded = v[i] < 0 ? 0u - q : q;
      code[i] = int32_t(folded) > 0 ? 2 * folded - 1 : 0u - 2 * folded;
    }
    return beyond >= 0;
  }
  for (int i = 0; i < n; ++i) {
    const bool above = x[i] > g.origin[i];
    const R distance = above ? x[i] - g.origin[i] : g.origin[i] - x[i];
    const R t = distance * (above ? g.inv[i] : g.low_inv[i]);
    const R shifted = (t + R(v[i])) + magic;
    const R found = ((shifted - magic) - R(v[i])) * (above ? g.step[i] : g.low_step[i]);
    const R back = on_side<T>(found, above, g.origin[i], g.above[i]);
    const R eb = above ? g.eb[i] : g.low[i];
    beyond |= bounded::magnitude_bits(eb) - bounded::magnitude_bits(x[i] - back);
    beyond |= cap - bounded::magnitude_bits(t);
    const uint32_t q = uint32_t(bit_cast<U>(shifted) - bit_cast<U>(magic));
    code[i] = 2 * (int32_t(q) < 0 ? 0 : q) + (above ? 0 : 1);
  }
  return beyond >= 0;
}

template <class T>
inline void dequantize(const Spec& spec, const uint32_t* code, const Grid<Real<T>>& g,
                       const float* v, T* y) {
  using R = Real<T>;
  if (!spec.sides) {
    for (int i = 0; i < BLOCK; ++i) {
      const int32_t half = int32_t((code[i] >> 1) + (code[i] & 1));
      const int32_t folded = code[i] & 1 ? half : -half;
      const int32_t q = v[i] < 0 ? -folded : folded;
      y[i] = narrow<T>((R(q) - R(v[i])) * g.step[i]);
    }
    return;
  }
  for (int i = 0; i < BLOCK; ++i) {
    const bool above = (code[i] & 1) == 0;
    const R found = (R(int32_t(code[i] >> 1)) - R(v[i])) * (above ? g.step[i] : g.low_step[i]);
    y[i] = narrow<T>(on_side<T>(found, above, g.origin[i], g.above[i]));
  }
}

}  // namespace dithered
ACTZIP_END
