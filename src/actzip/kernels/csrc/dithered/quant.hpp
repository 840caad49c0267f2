// Dithered: values to codes and back, a block of 64 at a time; the twin of dithered_grid.py.
//
// r = round(x / step + v), decoded (r - v) step; codes 0, 1, 2, … for r = 0, s, -s, 2s, … with s the
// sign of v. With sides the distances from the origin are coded so: 2r above it, 2r + 1 elsewhere.
#pragma once

#include "dithered/grid.hpp"
#include "dithered/lanes.hpp"

ACTZIP_BEGIN
namespace dithered {

// x rounded to an element type.
inline float rounded(int64_t dtype, float x) {
  if (dtype == kBF16) return widen(narrow<bf16>(x));
  if (dtype == kF16) return widen(narrow<f16>(x));
  return x;
}
inline double rounded(int64_t, double x) { return x; }

// Constants of bounded::Limits for an element type.
inline double roundoff_of(int64_t dtype) {
  switch (dtype) {
    case kBF16: return bounded::Limits<bf16>::roundoff;
    case kF16: return bounded::Limits<f16>::roundoff;
    case kF32: return bounded::Limits<float>::roundoff;
    default: return bounded::Limits<double>::roundoff;
  }
}
inline int level_of(int64_t dtype, double ratio) {
  int level = 0;
  const double needed = (ratio + 0.5) * 2 * roundoff_of(dtype);
  while (level + 1 < bounded::LEVELS && needed > 1 - bounded::SCALE[level]) ++level;
  return level;
}

// What a value on its side decodes to.
template <class R>
ACTZIP_INLINE R on_side(int64_t dtype, R found, bool above, R origin, R least) {
  const R y = rounded(dtype, above ? origin + found : origin - found);
  if (above) return y > least ? y : least;
  return y < origin ? y : origin;
}

// Codes of one block; false when any value fails the check. most: the largest finite |x / step| of
// level 0 so far.
template <class R>
inline bool quantize(const Spec& spec, const R* x, const Grid<R>& g, const float* v, uint32_t* code,
                     R& most) {
  using U = typename bounded::Magic<R>::Unsigned;
  constexpr R magic = bounded::Magic<R>::value, infinity = R(__builtin_inf());
  const R cap = sizeof(R) == 8 ? R(bounded::Limits<double>::cap) : R(bounded::Limits<float>::cap);
  bool good = true;
  for (int i = 0; i < BLOCK; ++i) {
    const bool above = !spec.sides || x[i] > g.origin[i];
    const R distance = !spec.sides ? x[i] : above ? x[i] - g.origin[i] : g.origin[i] - x[i];
    const R first = distance * (above ? g.inv0[i] : g.low_inv0[i]), size = first < 0 ? -first : first;
    if (size < infinity && size > most) most = size;
    const R t = distance * (above ? g.inv[i] : g.low_inv[i]);
    const R shifted = (t + R(v[i])) + magic;
    const R found = ((shifted - magic) - R(v[i])) * (above ? g.step[i] : g.low_step[i]);
    const R back = spec.sides ? on_side(spec.dtype, found, above, g.origin[i], g.above[i])
                              : rounded(spec.dtype, found);
    const R miss = x[i] - back, eb = above ? g.eb[i] : g.low[i];
    good &= (miss < 0 ? -miss : miss) <= eb && (t < 0 ? -t : t) < cap;
    // unsigned: what is wrong with a value that fails the check may wrap around
    const uint32_t q = uint32_t(bit_cast<U>(shifted) - bit_cast<U>(magic));
    const uint32_t folded = v[i] < 0 ? 0u - q : q;
    if (spec.sides) code[i] = 2 * (int32_t(q) < 0 ? 0 : q) + (above ? 0 : 1);
    else code[i] = int32_t(folded) > 0 ? 2 * folded - 1 : 0u - 2 * folded;
  }
  return good;
}

template <class R>
inline void dequantize(const Spec& spec, const uint32_t* code, const Grid<R>& g, const float* v, R* y) {
  for (int i = 0; i < BLOCK; ++i) {
    if (spec.sides) {
      const bool above = (code[i] & 1) == 0;
      const R found = (R(int32_t(code[i] >> 1)) - R(v[i])) * (above ? g.step[i] : g.low_step[i]);
      y[i] = on_side(spec.dtype, found, above, g.origin[i], g.above[i]);
      continue;
    }
    const int32_t half = int32_t((code[i] >> 1) + (code[i] & 1));
    const int32_t folded = code[i] & 1 ? half : -half;
    const int32_t q = v[i] < 0 ? -folded : folded;
    y[i] = (R(q) - R(v[i])) * g.step[i];
  }
}

#ifdef __AVX2__
// The same with vectors.
ACTZIP_INLINE F rounded(int64_t dtype, F a) {
  if (dtype == kF32) return a;
  return dtype == kBF16 ? round_bf16(a) : round_f16(a);
}
ACTZIP_INLINE F on_side(int64_t dtype, F found, Truth above, F origin, F least) {
  const F y = rounded(dtype, vadd(origin, flip_where(negated(above), found)));
  return pick(above, vmax(y, least), vmin(y, origin));
}

template <>
inline bool quantize<float>(const Spec& spec, const float* x, const Grid<float>& g, const float* v,
                            uint32_t* code, float& most) {
  const F magic = set1(bounded::Magic<float>::value), cap = set1(float(bounded::Limits<float>::cap));
  const I base = ints(magic);
  F top = set1(most);
  Bad bad = no_bad();
  if (!spec.sides) {
    for (int i = 0; i < BLOCK; i += kLanes) {
      const F here = load(x + i), dither = load(v + i), t = vmul(here, load(g.inv + i));
      top = finite_max(top, vabs(vmul(here, load(g.inv0 + i))));
      const F shifted = vadd(vadd(t, dither), magic);
      const F back = rounded(spec.dtype, vmul(vsub(vsub(shifted, magic), dither), load(g.step + i)));
      bad = or_bad(bad, vabs(vsub(here, back)), load(g.eb + i), vabs(t), cap);
      const I q = isub(ints(shifted), base), sign = signs(dither), folded = isub(ixor(q, sign), sign);
      const I size = iabs(folded);
      istore(code + i, less_one(iadd(size, size), folded));
    }
  } else {
    for (int i = 0; i < BLOCK; i += kLanes) {
      const F here = load(x + i), dither = load(v + i), origin = load(g.origin + i);
      const Truth above = greater(here, origin);
      const F distance = vabs(vsub(here, origin));
      const F t = vmul(distance, pick(above, load(g.inv + i), load(g.low_inv + i)));
      top = finite_max(top, vmul(distance, pick(above, load(g.inv0 + i), load(g.low_inv0 + i))));
      const F shifted = vadd(vadd(t, dither), magic);
      const F step = pick(above, load(g.step + i), load(g.low_step + i));
      const F found = vmul(vsub(vsub(shifted, magic), dither), step);
      const F back = on_side(spec.dtype, found, above, origin, load(g.above + i));
      const F eb = pick(above, load(g.eb + i), load(g.low + i));
      bad = or_bad(bad, vabs(vsub(here, back)), eb, t, cap);
      const I q = imax(isub(ints(shifted), base), iset1(0));
      istore(code + i, iadd(iadd(q, q), one_where(negated(above))));
    }
  }
  most = reduce_max(top);
  return !any_bad(bad);
}

template <>
inline void dequantize<float>(const Spec& spec, const uint32_t* code, const Grid<float>& g,
                              const float* v, float* y) {
  for (int i = 0; i < BLOCK; i += kLanes) {
    const I c = iload(code + i), half = iright(c, 1);
    const F dither = load(v + i);
    if (spec.sides) {
      const Truth below = odd_bit(c), above = negated(below);
      const F step = pick(above, load(g.step + i), load(g.low_step + i));
      const F found = vmul(vsub(to_float(half), dither), step);
      store(y + i, on_side(spec.dtype, found, above, load(g.origin + i), load(g.above + i)));
      continue;
    }
    const I odd = iand(c, iset1(1)), sign = ixor(isub(odd, iset1(1)), signs(dither));
    const I q = isub(ixor(iadd(half, odd), sign), sign);
    store(y + i, vmul(vsub(to_float(q), dither), load(g.step + i)));
  }
}
#endif

// 64 values from and to memory.
template <class T> inline void load64(const T* x, float* to) {
  spill(load32(x), to);
  spill(load32(x + 32), to + 32);
}
inline void load64(const double* x, double* to) { std::memcpy(to, x, 64 * sizeof *x); }
template <class T> inline void store64(T* to, const float* y, bool stream) {
  for (int half = 0; half < BLOCK; half += 32)
    stream ? stream32(to + half, load32(y + half)) : store32(to + half, load32(y + half));
}
inline void store64(double* to, const double* y, bool) { std::memcpy(to, y, 64 * sizeof *y); }

}  // namespace dithered
ACTZIP_END
