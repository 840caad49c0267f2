// How a group payload is laid out, and the walk over its blocks of 32.
//
// A tensor is `samples` rows of n elements; groups and blocks of 32 start afresh in each row.
// Payload: metadata of all groups | codes of row 0 | codes of row 1 | … | raw groups, in order.
#pragma once

#include "group/run.hpp"

ACTZIP_BEGIN

struct Layout {
  int64_t samples, n, group;
  const uint8_t* bits;     // of each row
  const int64_t* offsets;  // of each row's codes, then their end; counted from the payload's start

  int64_t groups() const { return n ? ceil_div(n, group) : 0; }
  int64_t length(int64_t g) const { return min_of(n, (g + 1) * group) - g * group; }
  int64_t rows32() const { return ceil_div(n, 32); }  // blocks of a row
  // Groups per chunk: chunks start on a block of 32 in any case.
  int64_t chunk() const {
    const int64_t unit = group % 32 ? 32 : 1;
    return unit * max_of<int64_t>(1, 16384 / (unit * group));
  }
  int64_t chunks() const { return groups() ? ceil_div(groups(), chunk()) : 0; }
  bool fits(int64_t size, int64_t meta_bytes) const {
    if (samples < 0 || n < 0 || group < 1 || offsets[0] != meta_bytes) return false;
    for (int64_t s = 0; s < samples; ++s)
      if (bits[s] < 1 || bits[s] > 8 || offsets[s + 1] - offsets[s] != planes_size(n, bits[s]))
        return false;
    return offsets[samples] <= size;
  }
};

// Whether there are tables for so many rows, and their elements can be counted.
inline bool rows_hold(int64_t samples, int64_t n, int64_t group, Buffer<const uint8_t> bits,
                      Buffer<const int64_t> offsets) {
  constexpr int64_t most = int64_t(1) << 56;
  return samples >= 0 && n >= 0 && n <= most && group >= 1 && group <= most &&
         bits.holds(samples, 1) && offsets.holds(samples + 1, 8) && (n == 0 || samples <= most / n);
}

inline Coding coding(int bits, int64_t rounding, int64_t zero) {
  return {bits, zero != 0, rounding != 0, rounding == 2};
}

// Values of 32 elements starting at x; beyond m zeros, so that no byte after the tensor is read.
template <class T> ACTZIP_INLINE Block take32(const T* x, int64_t m) {
  if (m >= 32) return load32(x);
  T buffer[32] = {};
  std::memcpy(buffer, x, size_t(m) * sizeof(T));
  return load32(buffer);
}
ACTZIP_INLINE Wide<double> take32(const double* x, int64_t m) {
  Wide<double> w{};
  std::memcpy(w.a, x, size_t(min_of<int64_t>(m, 32)) * sizeof(double));
  return w;
}
template <class T> ACTZIP_INLINE void give32(T* x, const Block& b, int64_t m) {
  if (m >= 32) return store32(x, b);
  T buffer[32];
  store32(buffer, b);
  std::memcpy(x, buffer, size_t(m) * sizeof(T));
}
ACTZIP_INLINE void give32(double* x, const Wide<double>& b, int64_t m) {
  std::memcpy(x, b.a, size_t(min_of<int64_t>(m, 32)) * sizeof(double));
}

template <class R> struct Lanes;
template <> struct Lanes<float> { using type = Block; };
template <> struct Lanes<double> { using type = Wide<double>; };
template <class R> ACTZIP_INLINE typename Lanes<R>::type spread(R x);
template <> ACTZIP_INLINE Block spread<float>(float x) { return spread32(x); }
template <> ACTZIP_INLINE Wide<double> spread<double>(double x) {
  Wide<double> w;
  for (double& a : w.a) a = x;
  return w;
}
ACTZIP_INLINE void put32(float* to, const Block& b) { store32(to, b); }
ACTZIP_INLINE void put32(double* to, const Wide<double>& w) { std::memcpy(to, w.a, sizeof w.a); }

// The walk for groups that do not end with a block.
template <class R, class V, class G, class H>
inline void walk_any(const Layout& l, int64_t g0, int64_t g1, V&& value, G&& run, H&& block) {
  const int64_t end = min_of(l.n, g1 * l.group);
  Pair<R> now = value(g0);
  int64_t g = g0, next = min_of(l.n, (g + 1) * l.group);
  const auto advance = [&](int64_t i) {
    if (i != next) return;
    now = value(++g);
    next = min_of(l.n, (g + 1) * l.group);
  };
  for (int64_t i = g0 * l.group; i < end;) {
    advance(i);
    if (const int64_t whole = (next - i) / 32) {
      run(i, int64_t(1), whole, &now);
      i += 32 * whole;
      continue;
    }
    // A group's numbers are written for 32 elements on, and then over by the next group's.
    R lo[64], factor[64];
    const int64_t m = min_of<int64_t>(32, end - i);
    for (int64_t k = 0; k < m; k = next - i) {
      advance(i + k);
      put32(lo + k, spread<R>(now.lo));
      put32(factor + k, spread<R>(now.factor));
    }
    block(i, m, take32(lo, 32), take32(factor, 32));
    i += 32;
  }
}

// Groups of one run at most.
constexpr int64_t kFew = 64;

// Walks the groups [g0, g1) of a row; value(g) gives a group's lo and factor.
// run(first element, groups, blocks, lo and factor of each) for groups of so many blocks each;
// block(first element, count, lo, factor) for one that several groups share, or that the row's end
// cuts short, with a lo and a factor for each element.
template <class R, class V, class G, class H>
inline void walk(const Layout& l, int64_t g0, int64_t g1, V&& value, G&& run, H&& block) {
  if (l.group % 32) return walk_any<R>(l, g0, g1, value, run, block);
  Pair<R> few[kFew];
  const int64_t whole = min_of(g1, l.n / l.group);
  for (int64_t g = g0; g < whole; g += kFew) {
    const int64_t count = min_of(kFew, whole - g);
    for (int64_t k = 0; k < count; ++k) few[k] = value(g + k);
    run(g * l.group, count, l.group / 32, few);
  }
  if (whole < g1) {  // the last group of the row, a short one
    const int64_t first = whole * l.group, length = l.length(whole), left = length % 32;
    few[0] = value(whole);
    run(first, int64_t(1), length / 32, few);
    if (left) block(first + length - left, left, spread<R>(few[0].lo), spread<R>(few[0].factor));
  }
}

ACTZIP_END
