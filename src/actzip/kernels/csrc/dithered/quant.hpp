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

constexpr int64_t BLOCKS_PER_CHUNK = CHUNK / BLOCK;

// grid: bounds per channel, of values above the origin; then those of the others, the origins, and
// what values above them are at least, all of which are read with sides only.
struct Spec {
  int64_t n, dtype;
  const uint8_t* grid;
  int64_t channels, inner;
  uint64_t seed;
  bool sides;
};

// What an element's channel says, 64 or more of them one after the other.
template <class R>
struct Grid {
  const R *eb, *step, *inv, *inv0;  // inv0: of level 0
  const R *low, *low_step, *low_inv, *low_inv0, *origin, *above;
};

constexpr int FIELDS = 4;        // eb, low, origin, above
constexpr int KEPT_LEVELS = 3;   // more are hardly ever used
constexpr int64_t MOST_KEPT = 8192;

// Where channels follow each other in memory, their numbers do too: as a table that goes on 64
// elements behind its end. Elsewhere most blocks are of one channel, the same as the block before.
template <class R>
struct Grids {
  const Spec& spec;
  R* const table;  // null: not made
  int64_t stride;
  alignas(64) R own[10][BLOCK];
  int level = -1;  // that `own` is filled for, with the channel that all 64 are of
  int64_t channel = -1;

  Grids(const Spec& s, R* room) : spec(s), table(tabled(s) ? room : nullptr), stride(s.channels + BLOCK) {}

  static bool tabled(const Spec& s) { return s.channels > 1 && s.inner == 1 && s.channels <= MOST_KEPT; }
  // Numbers that the table takes.
  static int64_t room(const Spec& s) {
    return tabled(s) ? (FIELDS + 4 * KEPT_LEVELS) * (s.channels + BLOCK) : 0;
  }
  static R field(const Spec& s, int field, int64_t channel) {
    return load_as<R>(s.grid + (field * s.channels + channel) * int64_t(sizeof(R)));
  }
  static void make(const Spec& s, R* table) {
    if (!tabled(s)) return;
    const int64_t n = s.channels + BLOCK;
    for (int f = 0; f < (s.sides ? FIELDS : 1); ++f)
      for (int64_t i = 0; i < n; ++i) table[f * n + i] = field(s, f, i % s.channels);
    for (int f = 0; f < (s.sides ? 2 : 1); ++f)
      for (int level = 0; level < KEPT_LEVELS; ++level) {
        const R scale = R(bounded::SCALE[level]);
        R* const step = table + (FIELDS + 4 * level + 2 * f) * n;
        for (int64_t i = 0; i < n; ++i) step[i] = (table[f * n + i] * 2) * scale;
        for (int64_t i = 0; i < n; ++i) step[n + i] = R(1) / step[i];
      }
  }

  Grid<R> at(int64_t start, int wanted) {
    if (table && wanted < KEPT_LEVELS) {
      const R* const t = table + start % spec.channels;
      const R *const here = t + (FIELDS + 4 * wanted) * stride, *const first = t + FIELDS * stride;
      return {t,          here,              here + stride,     first + stride,     t + stride,
              here + 2 * stride, here + 3 * stride, first + 3 * stride, t + 2 * stride, t + 3 * stride};
    }
    fill(start, wanted);
    return {own[0], own[1], own[2], own[3], own[4], own[5], own[6], own[7], own[8], own[9]};
  }

 private:
  void fill(int64_t start, int wanted) {
    const bool one = spec.channels == 1;
    int64_t next = one ? 0 : start / spec.inner % spec.channels;
    int64_t left = one ? BLOCK : spec.inner - start % spec.inner;
    const bool whole = left >= BLOCK;
    if (whole && level == wanted && channel == next) return;
    level = whole ? wanted : -1;
    channel = next;
    for (int i = 0; i < BLOCK;) {
      const int end = int(min_of<int64_t>(BLOCK, i + left));
      put(0, field(spec, 0, next), i, end);
      if (spec.sides) {
        put(4, field(spec, 1, next), i, end);
        put(8, field(spec, 2, next), i, end);
        put(9, field(spec, 3, next), i, end);
      }
      i = end;
      left = spec.inner;
      if (++next == spec.channels) next = 0;
    }
    for (int f = 0; f <= (spec.sides ? 4 : 0); f += 4) {
      const R scale = R(bounded::SCALE[wanted]), first = R(bounded::SCALE[0]);
      for (int i = 0; i < BLOCK; ++i) own[f + 1][i] = (own[f][i] * 2) * scale;
      for (int i = 0; i < BLOCK; ++i) own[f + 2][i] = R(1) / own[f + 1][i];
      for (int i = 0; i < BLOCK; ++i)
        own[f + 3][i] = wanted == 0 ? own[f + 2][i] : R(1) / ((own[f][i] * 2) * first);
    }
  }
  void put(int row, R value, int begin, int end) {
    for (int i = begin; i < end; ++i) own[row][i] = value;
  }
};

// Dither of the blocks of 64 that follow each other from element `start` on, and its bins.
struct Dither {
  alignas(64) float v[BLOCK];
  alignas(64) uint8_t bin[BLOCK];
  Noise noise;
  Dither(const Spec& spec, int64_t start)
      : noise(stream_key(spec.seed, uint64_t(start / 32) >> 28), start / 32) {}
  ACTZIP_INLINE void next() {
    for (int half = 0; half < BLOCK; half += 32) {
      const Block w = noise.raw();
      store_bytes(bin + half, top_bytes(w.v));
      spill(map(w, [](F a) { return vsub(a, set1(kRawBias)); }), v + half);
    }
  }
  ACTZIP_INLINE void next_bins() {
    for (int half = 0; half < BLOCK; half += 32) store_bytes(bin + half, top_bytes(noise.raw().v));
  }
};

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
// The same with vectors. A Truth is a mask of 32 bits per element, or of one bit.
#if defined(__AVX512F__)
using I = __m512i;
using Truth = __mmask16;
ACTZIP_INLINE I ints(F a) { return _mm512_castps_si512(a); }
ACTZIP_INLINE I iset1(int a) { return _mm512_set1_epi32(a); }
ACTZIP_INLINE I iadd(I a, I b) { return _mm512_add_epi32(a, b); }
ACTZIP_INLINE I isub(I a, I b) { return _mm512_sub_epi32(a, b); }
ACTZIP_INLINE I iand(I a, I b) { return _mm512_and_si512(a, b); }
ACTZIP_INLINE I ixor(I a, I b) { return _mm512_xor_si512(a, b); }
ACTZIP_INLINE I iabs(I a) { return _mm512_abs_epi32(a); }
ACTZIP_INLINE I imax(I a, I b) { return _mm512_max_epi32(a, b); }
ACTZIP_INLINE I iright(I a, int n) { return _mm512_srl_epi32(a, _mm_cvtsi32_si128(n)); }
ACTZIP_INLINE I signs(F a) { return _mm512_srai_epi32(ints(a), 31); }
// a - 1 where b is above 0.
ACTZIP_INLINE I less_one(I a, I b) {
  return _mm512_mask_sub_epi32(a, _mm512_cmpgt_epi32_mask(b, iset1(0)), a, iset1(1));
}
ACTZIP_INLINE F to_float(I a) { return _mm512_cvtepi32_ps(a); }
ACTZIP_INLINE I iload(const uint32_t* p) { return _mm512_loadu_si512(p); }
ACTZIP_INLINE void istore(uint32_t* p, I a) { _mm512_storeu_si512(p, a); }
ACTZIP_INLINE Truth greater(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
ACTZIP_INLINE Truth odd_bit(I a) { return _mm512_test_epi32_mask(a, iset1(1)); }
ACTZIP_INLINE F pick(Truth t, F yes, F no) { return _mm512_mask_mov_ps(no, t, yes); }
ACTZIP_INLINE F flip_where(Truth t, F a) {
  return _mm512_castsi512_ps(_mm512_mask_xor_epi32(ints(a), t, ints(a), iset1(int(0x80000000u))));
}
ACTZIP_INLINE I one_where(Truth t) { return _mm512_maskz_set1_epi32(t, 1); }
ACTZIP_INLINE Truth negated(Truth t) { return Truth(~t); }
using Bad = __mmask16;
ACTZIP_INLINE Bad no_bad() { return 0; }
ACTZIP_INLINE Bad or_bad(Bad b, F size, F bound, F t, F cap) {
  return _kor_mask16(b, _kor_mask16(_mm512_cmp_ps_mask(size, bound, _CMP_NLE_UQ),
                                    _mm512_cmp_ps_mask(t, cap, _CMP_NLT_UQ)));
}
ACTZIP_INLINE bool any_bad(Bad b) { return b != 0; }
ACTZIP_INLINE F finite_max(F so_far, F a) {
  return _mm512_mask_max_ps(so_far, _mm512_cmp_ps_mask(a, set1(__builtin_inff()), _CMP_LT_OQ), so_far, a);
}
ACTZIP_INLINE F round_bf16(F a) {
  return _mm512_castsi512_ps(_mm512_and_si512(rounded_bf16(a), iset1(int(0xffff0000u))));
}
ACTZIP_INLINE F round_f16(F a) {
  return _mm512_cvtph_ps(_mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
using I = __m256i;
using Truth = __m256;
ACTZIP_INLINE I ints(F a) { return _mm256_castps_si256(a); }
ACTZIP_INLINE I iset1(int a) { return _mm256_set1_epi32(a); }
ACTZIP_INLINE I iadd(I a, I b) { return _mm256_add_epi32(a, b); }
ACTZIP_INLINE I isub(I a, I b) { return _mm256_sub_epi32(a, b); }
ACTZIP_INLINE I iand(I a, I b) { return _mm256_and_si256(a, b); }
ACTZIP_INLINE I ixor(I a, I b) { return _mm256_xor_si256(a, b); }
ACTZIP_INLINE I iabs(I a) { return _mm256_abs_epi32(a); }
ACTZIP_INLINE I imax(I a, I b) { return _mm256_max_epi32(a, b); }
ACTZIP_INLINE I iright(I a, int n) { return _mm256_srl_epi32(a, _mm_cvtsi32_si128(n)); }
ACTZIP_INLINE I signs(F a) { return _mm256_srai_epi32(ints(a), 31); }
ACTZIP_INLINE I less_one(I a, I b) { return iadd(a, _mm256_cmpgt_epi32(b, iset1(0))); }
ACTZIP_INLINE F to_float(I a) { return _mm256_cvtepi32_ps(a); }
ACTZIP_INLINE I iload(const uint32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const I*>(p)); }
ACTZIP_INLINE void istore(uint32_t* p, I a) { _mm256_storeu_si256(reinterpret_cast<I*>(p), a); }
ACTZIP_INLINE Truth greater(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
ACTZIP_INLINE Truth odd_bit(I a) { return as_float(_mm256_slli_epi32(a, 31)); }
ACTZIP_INLINE F pick(Truth t, F yes, F no) { return _mm256_blendv_ps(no, yes, t); }
ACTZIP_INLINE F flip_where(Truth t, F a) { return _mm256_xor_ps(a, vsign(t)); }
ACTZIP_INLINE I one_where(Truth t) { return _mm256_srli_epi32(ints(t), 31); }
ACTZIP_INLINE Truth negated(Truth t) { return as_float(ixor(ints(t), iset1(-1))); }
using Bad = __m256;
ACTZIP_INLINE Bad no_bad() { return _mm256_setzero_ps(); }
ACTZIP_INLINE Bad or_bad(Bad b, F size, F bound, F t, F cap) {
  return vor(b, vor(_mm256_cmp_ps(size, bound, _CMP_NLE_UQ), _mm256_cmp_ps(t, cap, _CMP_NLT_UQ)));
}
ACTZIP_INLINE bool any_bad(Bad b) { return _mm256_movemask_ps(b) != 0; }
ACTZIP_INLINE F finite_max(F so_far, F a) {
  const F finite = _mm256_cmp_ps(a, set1(__builtin_inff()), _CMP_LT_OQ);
  return vmax(_mm256_and_ps(finite, a), so_far);
}
ACTZIP_INLINE F round_bf16(F a) { return as_float(_mm256_slli_epi32(rounded_bf16(a), 16)); }
ACTZIP_INLINE F round_f16(F a) {
  return _mm256_cvtph_ps(_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#endif

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
