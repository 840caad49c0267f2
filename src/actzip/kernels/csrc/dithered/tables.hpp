// Contexts of Dithered: read from a payload or chosen for what was counted; the twin of
// kernels/dithered_contexts.py. Nothing here is for many elements: it is compiled once.
#pragma once

#include <cstdint>

namespace actzip {
namespace dithered_tables {

constexpr int BINS = 256;      // of v
constexpr int CONTEXTS = 16;   // at most
constexpr int COUNTED = 64;    // codes counted for each bin, the last with all above
constexpr int ESCAPE = 255;
constexpr int64_t COUNTS = BINS * COUNTED + 256;
constexpr int MOST_STORED = 2 + CONTEXTS + CONTEXTS * 258;

// An element's context is how many edges its bin of v (folded: of |v|) has passed.
struct Contexts {
  int32_t count, chain, stored_bytes;
  bool folded, given;  // given: not chosen for these values
  uint8_t edge[CONTEXTS], group[CONTEXTS];
  uint16_t frequency[CONTEXTS][256];
  uint8_t stored[MOST_STORED];
};

// How many codes may be in a group of so many elements; 0 for other groups.
constexpr int base_of(int group) {
  switch (group) {
    case 1: return 255;
    case 2: return 16;
    case 3: return 6;
    case 4: return 4;
    case 5: return 3;
    case 8: return 2;
    default: return 0;
  }
}

// The contexts stored at the start of `bytes`; false for bytes that no encoder writes.
bool load(const uint8_t* bytes, int64_t length, Contexts& c);

// Contexts for n elements of which some were counted: counts of 64 codes in 256 bins, and of 256
// codes in all. Expected bits, or -1 when steps are too fine for this format.
double choose(const int32_t* counts, int64_t n, Contexts& c);

}  // namespace dithered_tables
}  // namespace actzip
