// Values to symbols and back: one block of 64 on its grid, with the strict check of the bound.
#pragma once

#include "bounded/format.hpp"
#include "common/simd.hpp"

ACTZIP_BEGIN
namespace bounded {

// What one call needs to know about all of its values. eb: one bound per channel, already so
// much below the user's that a rounded difference cannot hide a violation.
struct Spec {
  int64_t n;
  const uint8_t* eb;
  int64_t channels, inner;
  uint64_t seed;
  bool dither;
  int64_t width, height;  // of the maps for the 2-D prediction; width 0: the 1-D one
};

inline bool valid(const Spec& s) {
  return s.n >= 0 && s.channels >= 1 && s.inner >= 1 && s.width >= 0 &&
         (s.width == 0 || s.height >= 1);
}

// Calls f(T{}, BoolTag<dither>{}) for the element type that `dtype` names.
template <class F>
inline int64_t with_rounding(int64_t dtype, bool dither, F&& f) {
  return with_float(dtype, [&](auto type) {
    if (dither) return f(type, BoolTag<true>{});
    return f(type, BoolTag<false>{});
  });
}

template <class R>
struct Grid {
  alignas(64) R eb[BLOCK], step[BLOCK], inv[BLOCK];
  int level = -1;  // and the channel that all 64 are of: filled for them already
  int64_t channel = -1;
};

// Limits of the integers, and the unit roundoff that level thresholds follow from (for float32
// and float64 that of the five operations between x and its re-check together).
template <class T> struct Limits;
template <> struct Limits<float> { static constexpr double cap = 0x1p20, roundoff = 0x1p-21; };
template <> struct Limits<bf16> { static constexpr double cap = 0x1p20, roundoff = 0x1p-8; };
template <> struct Limits<f16> { static constexpr double cap = 0x1p20, roundoff = 0x1p-11; };
template <> struct Limits<double> { static constexpr double cap = 0x1p26, roundoff = 0x1p-50; };

// The grid of the 64 values from global index `start`. Most blocks are of one channel, the same as
// the block before.
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
    const R eb = load_as<R>(spec.eb + channel * int64_t(sizeof(R)));
    const int end = int(min_of<int64_t>(BLOCK, i + left));
    for (; i < end; ++i) g.eb[i] = eb;
    left = spec.inner;
    if (++channel == spec.channels) channel = 0;
  }
  for (int i = 0; i < BLOCK; ++i) g.step[i] = (g.eb[i] * 2) * R(SCALE[level]);
  for (int i = 0; i < BLOCK; ++i) g.inv[i] = R(1) / g.step[i];
}

inline void fill_dither(const Spec& spec, int64_t start, float* v) {
  if (!spec.dither) {
    for (int i = 0; i < BLOCK; ++i) v[i] = 0;
    return;
  }
  const Key key = stream_key(spec.seed, uint64_t(start / 32) >> 28);
  spill(dither_block(key, start / 32), v);
  spill(dither_block(key, start / 32 + 1), v + 32);
}

// Adding 3 * 2^(mantissa - 1) rounds to the nearest even integer, which then stands in the low bits.
template <class R> struct Magic;
template <> struct Magic<float> {
  static constexpr float value = 12582912.0f;
  using Int = int32_t;
  using Unsigned = uint32_t;
};
template <> struct Magic<double> {
  static constexpr double value = 6755399441055744.0;
  using Int = int64_t;
  using Unsigned = uint64_t;
};
template <class R> using IntOf = typename Magic<R>::Int;

// |x| as bits: they order like the magnitudes, with infinity and then NaN above all numbers.
template <class R>
inline IntOf<R> magnitude_bits(R x) {
  using I = IntOf<R>;
  return bit_cast<I>(x) & I(~(I(1) << (8 * sizeof(I) - 1)));
}

// x, or zero when `not_it`; without a branch, so that loops vectorise.
template <class R>
inline R unless(bool not_it, R x) {
  using I = IntOf<R>;
  return bit_cast<R>(I(bit_cast<I>(x) & (I(not_it) - 1)));
}

// The largest |x / step| of 64 values and `so_far`, as bits; infinity and NaN are left out.
template <class R>
inline IntOf<R> largest_ratio(const R* x, const Grid<R>& g, IntOf<R> so_far) {
  const IntOf<R> infinity = magnitude_bits(R(__builtin_inf()));
  for (int i = 0; i < BLOCK; ++i) {
    const IntOf<R> bits = magnitude_bits(x[i] * g.inv[i]);
    so_far = max_of(so_far, bits < infinity ? bits : 0);
  }
  return so_far;
}

// (ratio + 1/2) 2 roundoff <= 1 - scale keeps the last rounding inside the bound.
template <class T>
inline int level_of(double ratio) {
  int level = 0;
  while (level + 1 < LEVELS && (ratio + 0.5) * 2 * Limits<T>::roundoff > 1 - SCALE[level]) ++level;
  return level;
}

// What quantize finds out about all blocks so far: the largest |x / step| as bits, 64 maxima side by
// side (one number would take a reduction per block).
template <class R>
struct Range {
  alignas(64) IntOf<R> ratio[BLOCK] = {};

  IntOf<R> largest() const {
    IntOf<R> most = 0;
    for (int i = 0; i < BLOCK; ++i) most = max_of(most, ratio[i]);
    return most;
  }
};

// Symbols of one block. False when any value fails the check: then the block is stored raw. The
// checks |x - back| <= eb and |x / step| < cap are made on bits, where NaN is larger than all.
template <class T, bool DITHER>
inline bool quantize(const Real<T>* x, const Grid<Real<T>>& g, const float* v, int32_t* s,
                     Range<Real<T>>& range) {
  using R = Real<T>;
  using I = IntOf<R>;
  using U = typename Magic<R>::Unsigned;
  const I cap = magnitude_bits(R(Limits<T>::cap)) - 1;
  I beyond = 0;
  for (int i = 0; i < BLOCK; ++i) {
    const R t = x[i] * g.inv[i];
    const R shifted = (t + R(v[i])) + Magic<R>::value;
    const R r = shifted - Magic<R>::value;
    const R back = widen(narrow<T>((r - R(v[i])) * g.step[i]));
    beyond |= magnitude_bits(g.eb[i]) - magnitude_bits(x[i] - back);
    // nothing but zero comes back as zero; only 16-bit floats are coarse enough to break that
    if (DITHER && sizeof(T) == 2) beyond |= (back == 0) & (x[i] != 0) ? I(-1) : I(0);
    const I ratio = magnitude_bits(t);
    beyond |= cap - ratio;
    range.ratio[i] = max_of(range.ratio[i], ratio);
    // unsigned: what is wrong with a value that fails the check may wrap around
    const uint32_t q = uint32_t(bit_cast<U>(shifted) - bit_cast<U>(Magic<R>::value));
    const uint32_t symbol = DITHER ? q + 1 - (q >> 31) : q;
    s[i] = x[i] != 0 ? int32_t(symbol) : 0;
  }
  return beyond >= 0;
}

template <class T, bool DITHER>
inline void dequantize(const int32_t* s, const Grid<Real<T>>& g, const float* v, T* y) {
  using R = Real<T>;
  for (int i = 0; i < BLOCK; ++i) {
    const int32_t q = DITHER ? s[i] - (s[i] > 0 ? 1 : 0) : s[i];
    y[i] = narrow<T>(unless<R>(s[i] == 0, (R(q) - R(v[i])) * g.step[i]));
  }
}

}  // namespace bounded
ACTZIP_END
