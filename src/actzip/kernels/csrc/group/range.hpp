// The pass over a group that finds its least and its largest value, and whether a NaN is among them.
#pragma once

#include "group/meta.hpp"
#include "common/simd.hpp"

ACTZIP_BEGIN

template <class R> struct Found { R lo, hi; bool odd; };

template <class R> ACTZIP_INLINE Range<R> range_of(const Found<R>& f) {
  using Bits = typename Limits<R>::Bits;
  constexpr Bits all = Bits(~Bits(0));
  const Bits most = max_of(bit_cast<Bits>(f.lo) & all >> 1, bit_cast<Bits>(f.hi) & all >> 1);
  const bool any = !(f.lo > f.hi);
  return {f.lo, f.hi, f.odd ? all : any ? most : Bits(0), any};
}

// Accumulators for each vector of a block: one chain of minima would be as slow as its latency.
// Minima pass over NaNs, so these are looked for apart, two vectors at a time.
template <bool Zero> struct SeenFloats {
  Block lo = spread32(__builtin_inff()), hi = spread32(-__builtin_inff());
  Odd odd = no_odd();
  ACTZIP_INLINE void see(const Block& x) {
    for (int k = 0; k < kVectors; k += 2) odd = odd_or(odd, x.v[k], x.v[k + 1]);
    for (int k = 0; k < kVectors; ++k) {
      if (Zero) {
        see_nonzero(x.v[k], lo.v[k], hi.v[k]);
      } else {
        lo.v[k] = vmin(x.v[k], lo.v[k]);
        hi.v[k] = vmax(x.v[k], hi.v[k]);
      }
    }
  }
  ACTZIP_INLINE Range<float> range() const {
    F least = lo.v[0], largest = hi.v[0];
    for (int k = 1; k < kVectors; ++k) {
      least = vmin(least, lo.v[k]);
      largest = vmax(largest, hi.v[k]);
    }
    return range_of<float>({reduce_min(least), reduce_max(largest), any_odd(odd)});
  }
};

template <bool Zero>
ACTZIP_INLINE Range<float> find_range(const float* x, int64_t n) {
  SeenFloats<Zero> seen;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) seen.see(load32(x + i));
  for (; i < n; ++i) seen.see(spread32(x[i]));
  return seen.range();
}

// 16-bit floats are compared as integers, all 32 of a block at once: with the lower bits of negative
// numbers turned they are in order, and NaNs beyond the infinities at both ends.
template <class T> struct Infinity;
template <> struct Infinity<bf16> { static constexpr int16_t bits = 0x7f80; };
template <> struct Infinity<f16> { static constexpr int16_t bits = 0x7c00; };

ACTZIP_INLINE int16_t in_order(int16_t w) { return int16_t(w ^ (w >> 15 & 0x7fff)); }

template <bool Zero, class T>
ACTZIP_INLINE Range<float> find_range(const T* x, int64_t n) {
  SeenWords<Zero> seen;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) seen.see(x + i);
  if (i < n) {
    T last[32];
    for (int k = 0; k < 32; ++k) last[k] = x[i + k < n ? i + k : i];
    seen.see(last);
  }
  const int16_t lo = seen.least(), hi = seen.largest();
  if (lo > hi) return {0, 0, 0, false};  // zeros only
  const auto value = [](int16_t w) { return widen(T{uint16_t(in_order(w))}); };
  const bool odd = hi > Infinity<T>::bits || lo < ~Infinity<T>::bits;
  return range_of<float>({value(lo), value(hi), odd});
}

template <bool Zero>
inline Range<double> find_range(const double* x, int64_t n) {
  Range<double> r{__builtin_inf(), -__builtin_inf(), 0, false};
  for (int64_t i = 0; i < n; ++i) {
    r.magnitude = max_of<uint64_t>(r.magnitude, bit_cast<uint64_t>(x[i]) & ~0ull >> 1);
    if (Zero && x[i] == 0) continue;
    r.lo = x[i] < r.lo ? x[i] : r.lo;
    r.hi = x[i] > r.hi ? x[i] : r.hi;
  }
  r.any = !(r.lo > r.hi);
  return r;
}

ACTZIP_END
