// One span of Bounded with the entropy stage.
//
//   uint32 length of the coded symbols | coded symbols | extra bits | the values of raw blocks
//
// The spans of a chain are coded from the last to the first and decoded from the first on.
#pragma once

#include "bounded/squeeze.hpp"

ACTZIP_BEGIN
namespace bounded {

// What a span is coded with, and where its side information goes.
struct Squeeze {
  const uint16_t* frequency;
  Kind kind;
  int64_t chain;      // spans that share the coder's states
  uint8_t* levels;    // one per chunk
  uint8_t* raw;       // a uint64 per chunk, a bit per block
};

inline int64_t raw_values(uint64_t raw, int n) {
  const int last = (n - 1) / BLOCK;
  const bool cut = raw >> last & 1;
  return int64_t(__builtin_popcountll(raw)) * BLOCK - (cut ? (last + 1) * BLOCK - n : 0);
}

// Bytes of the raw blocks of a span.
template <class T>
inline int64_t raw_bytes(const Spec& spec, int64_t span, const uint8_t* raw) {
  int64_t values = 0;
  const int64_t first = span * CHUNKS_PER_SPAN;
  for (int64_t c = first; c < min_of(first + CHUNKS_PER_SPAN, ceil_div(spec.n, CHUNK)); ++c)
    values += raw_values(load_as<uint64_t>(raw + 8 * c), int(min_of<int64_t>(CHUNK, spec.n - c * CHUNK)));
  return values * int64_t(sizeof(T));
}

}  // namespace bounded
ACTZIP_END
