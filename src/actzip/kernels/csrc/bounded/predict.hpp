// Lorenzo prediction on the symbols of one chunk: residuals for the delta mode and back.
// Neighbours outside of the chunk or of the map count as zero, so chunks stay independent.
// Arithmetic is modulo 2^32: damaged bytes give wrong symbols, no overflow.
#pragma once

#include "bounded/quant.hpp"

ACTZIP_BEGIN
namespace bounded {

inline uint32_t zigzag(uint32_t d) { return (d << 1) ^ (0u - (d >> 31)); }
inline uint32_t unzigzag(uint32_t u) { return (u >> 1) ^ (0u - (u & 1)); }

// Symbols [begin, end) of a chunk in one row of a map: what their neighbours are. `above` is
// whether the row over them is in the map and, from `begin` on, in the chunk; `left` whether the
// first of them has a left neighbour. A run ends where either would change.
struct Run {
  int64_t begin, end;
  bool above, left;
};

// Calls f(run) for the rows of symbols [begin, begin + n) of the chunk that starts at `first`.
template <class F>
inline void for_runs(const Spec& spec, int64_t first, int64_t begin, int n, F&& f) {
  if (spec.width == 0) return f(Run{begin, begin + n, false, begin > 0});
  int64_t column = (first + begin) % spec.width, row = (first + begin) / spec.width % spec.height;
  for (int64_t i = begin; i < begin + n;) {
    int64_t end = min_of(begin + n, i + spec.width - column);
    const bool above = row > 0 && i >= spec.width;
    if (row > 0 && i < spec.width) end = min_of(end, spec.width);
    f(Run{i, end, above, column > 0 && i > 0});
    column += end - i;
    i = end;
    if (column < spec.width) continue;
    column = 0;
    if (++row == spec.height) row = 0;
  }
}

// What symbols of a run with a row above take from there: at `i`, the difference of the two over
// them. The corner of symbol `width` lies outside of the chunk.
inline uint32_t from_above(const int32_t* s, int64_t i, int64_t width, bool left) {
  const uint32_t corner = left && i > width ? uint32_t(s[i - width - 1]) : 0;
  return uint32_t(s[i - width]) - corner;
}

// Zigzag residuals of symbols [begin, begin + 64); returns their bitwise or.
inline uint32_t residuals(const Spec& spec, int64_t first, const int32_t* s, int64_t begin,
                          int n, uint32_t* u) {
  const int64_t width = spec.width;
  for_runs(spec, first, begin, n, [&](const Run& run) {
    uint32_t d = uint32_t(s[run.begin]) - (run.left ? uint32_t(s[run.begin - 1]) : 0);
    if (run.above) d -= from_above(s, run.begin, width, run.left);
    u[run.begin - begin] = zigzag(d);
    for (int64_t i = run.begin + 1; i < run.end; ++i) {
      d = uint32_t(s[i]) - uint32_t(s[i - 1]);
      if (run.above) d -= uint32_t(s[i - width]) - uint32_t(s[i - width - 1]);
      u[i - begin] = zigzag(d);
    }
  });
  for (int i = n; i < BLOCK; ++i) u[i] = 0;
  uint32_t all = 0;
  for (int i = 0; i < BLOCK; ++i) all |= u[i];
  return all;
}

inline void unpredict(const Spec& spec, int64_t first, const uint32_t* u, int64_t begin, int n,
                      int32_t* s) {
  const int64_t width = spec.width;
  for_runs(spec, first, begin, n, [&](const Run& run) {
    uint32_t last = run.left ? uint32_t(s[run.begin - 1]) : 0;
    last += unzigzag(u[run.begin - begin]);
    if (run.above) last += from_above(s, run.begin, width, run.left);
    s[run.begin] = int32_t(last);
    for (int64_t i = run.begin + 1; i < run.end; ++i) {
      last += unzigzag(u[i - begin]);
      if (run.above) last += uint32_t(s[i - width]) - uint32_t(s[i - width - 1]);
      s[i] = int32_t(last);
    }
  });
}

}  // namespace bounded
ACTZIP_END
