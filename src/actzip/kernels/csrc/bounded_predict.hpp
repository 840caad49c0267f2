// Lorenzo prediction on the symbols of one chunk: residuals for the delta mode and back.
// Neighbours outside of the chunk or of the map count as zero, so chunks stay independent.
// Arithmetic is modulo 2^32: damaged bytes give wrong symbols, no overflow.
#pragma once

#include "bounded_quant.hpp"

ACTZIP_BEGIN
namespace bounded {

inline uint32_t zigzag(uint32_t d) { return (d << 1) ^ (0u - (d >> 31)); }
inline uint32_t unzigzag(uint32_t u) { return (u >> 1) ^ (0u - (u & 1)); }

// What is predicted for symbol i of the chunk that starts at global index `first`.
inline uint32_t predicted(const Spec& spec, int64_t first, const int32_t* s, int64_t i) {
  if (spec.width == 0) return i > 0 ? uint32_t(s[i - 1]) : 0;
  const int64_t column = (first + i) % spec.width;
  const bool has_row = (first + i) / spec.width % spec.height > 0;
  const bool left = column > 0 && i > 0;
  const bool above = has_row && i >= spec.width;
  const bool corner = column > 0 && has_row && i > spec.width;
  const uint32_t a = left ? uint32_t(s[i - 1]) : 0;
  const uint32_t b = above ? uint32_t(s[i - spec.width]) : 0;
  const uint32_t c = corner ? uint32_t(s[i - spec.width - 1]) : 0;
  return a + b - c;
}

// Zigzag residuals of symbols [begin, begin + 64); returns their bitwise or.
inline uint32_t residuals(const Spec& spec, int64_t first, const int32_t* s, int64_t begin,
                          int n, uint32_t* u) {
  uint32_t all = 0;
  if (spec.width == 0 && begin > 0) {
    for (int i = 0; i < BLOCK; ++i) {
      const uint32_t d = zigzag(uint32_t(s[begin + i]) - uint32_t(s[begin + i - 1]));
      u[i] = i < n ? d : 0;
      all |= u[i];
    }
    return all;
  }
  for (int i = 0; i < n; ++i) {
    u[i] = zigzag(uint32_t(s[begin + i]) - predicted(spec, first, s, begin + i));
    all |= u[i];
  }
  for (int i = n; i < BLOCK; ++i) u[i] = 0;
  return all;
}

inline void unpredict(const Spec& spec, int64_t first, const uint32_t* u, int64_t begin, int n,
                      int32_t* s) {
  if (spec.width == 0) {
    uint32_t last = begin > 0 ? uint32_t(s[begin - 1]) : 0;
    for (int i = 0; i < n; ++i) s[begin + i] = int32_t(last += unzigzag(u[i]));
    return;
  }
  for (int i = 0; i < n; ++i)
    s[begin + i] = int32_t(unzigzag(u[i]) + predicted(spec, first, s, begin + i));
}

}  // namespace bounded
ACTZIP_END
