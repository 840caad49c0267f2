// Per-group metadata: least value and step, each rounded to the upper half of its bits first
// (bfloat16 for float, 32 bits for double), so that quantizing uses exactly what is stored.
#pragma once

#include "common/simd.hpp"

ACTZIP_BEGIN

template <class R> struct Limits;
template <> struct Limits<float> {
  using Bits = uint32_t;
  using Half = uint16_t;
  static constexpr float kLargest = 0x1p124f;   // beyond: lo + codes * step could overflow
  static constexpr float kSmallest = 0x1p-100f;  // a smaller range has no reciprocal step
};
template <> struct Limits<double> {
  using Bits = uint64_t;
  using Half = uint32_t;
  static constexpr double kLargest = 0x1p1020;
  static constexpr double kSmallest = 0x1p-900;
};

template <class R> constexpr int kHalfBits = 4 * sizeof(R);

// What one pass over a group finds. `magnitude`: bits of the largest |x|, NaN and infinity on top.
template <class R> struct Range { R lo, hi; typename Limits<R>::Bits magnitude; bool any; };

template <class R> struct Meta {
  R lo, step;
  bool raw;  // the group is stored as it is, after the codes
};

template <class R> ACTZIP_INLINE R upper_floor(R x) {
  using Bits = typename Limits<R>::Bits;
  constexpr Bits low = (Bits(1) << kHalfBits<R>) - 1;
  const Bits bits = bit_cast<Bits>(x);
  return bit_cast<R>((x < 0 ? bits + low : bits) & ~low);
}
template <class R> ACTZIP_INLINE R upper_ceil_positive(R x) {
  using Bits = typename Limits<R>::Bits;
  constexpr Bits low = (Bits(1) << kHalfBits<R>) - 1;
  return bit_cast<R>((bit_cast<Bits>(x) + low) & ~low);
}

// levels: the largest code, counted from the one that stands for lo.
template <class R> ACTZIP_INLINE Meta<R> make_meta(const Range<R>& range, int levels) {
  using L = Limits<R>;
  if (range.magnitude > bit_cast<typename L::Bits>(L::kLargest)) return {0, 0, true};
  if (!range.any) return {0, 0, false};
  if (levels == 0) return {upper_floor<R>(range.lo * R(0.5) + range.hi * R(0.5) + R(0)), 0, false};
  const R lo = upper_floor<R>(range.lo + R(0));  // + 0: no negative zero
  const R width = range.hi - lo;
  if (width == 0) return {lo, 0, false};
  if (width < L::kSmallest) return {0, 0, true};
  return {lo, upper_ceil_positive<R>(width / R(levels)), false};
}

// Metadata in a payload: all lo first, then all steps; a raw group has all bits of step set.
template <class R> struct MetaArray {
  using Half = typename Limits<R>::Half;
  using Bits = typename Limits<R>::Bits;
  uint8_t* data;
  int64_t groups;

  static constexpr Half kRaw = Half(~Half(0));
  int64_t bytes() const { return 2 * groups * int64_t(sizeof(Half)); }
  bool is_raw(int64_t g) const { return step_bits(g) == kRaw; }
  Half step_bits(int64_t g) const { return load_as<Half>(data + (groups + g) * int64_t(sizeof(Half))); }

  Meta<R> get(int64_t g) const {
    const Half lo = load_as<Half>(data + g * int64_t(sizeof(Half))), step = step_bits(g);
    if (step == kRaw) return {0, 0, true};
    return {bit_cast<R>(Bits(Bits(lo) << kHalfBits<R>)), bit_cast<R>(Bits(Bits(step) << kHalfBits<R>)), false};
  }
  void set(int64_t g, const Meta<R>& m) const {
    const Half lo = Half(bit_cast<Bits>(m.lo) >> kHalfBits<R>);
    const Half step = m.raw ? kRaw : Half(bit_cast<Bits>(m.step) >> kHalfBits<R>);
    store_as(data + g * int64_t(sizeof(Half)), lo);
    store_as(data + (groups + g) * int64_t(sizeof(Half)), step);
  }
};

ACTZIP_END
