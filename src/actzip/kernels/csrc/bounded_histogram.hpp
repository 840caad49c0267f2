// How often each symbol of the entropy stage occurs: what the table is made from.
#pragma once

#include "bounded_squeeze.hpp"

ACTZIP_BEGIN
namespace bounded {

// Counts of signed codes, then of unsigned ones, then of negative symbols (see bounded_count).
class Histogram {
 public:
  void add(const Spec& spec, int64_t first, const Symbols& symbols, int b, int n) {
    alignas(64) uint32_t u[BLOCK];
    const int32_t* const s = symbols.s + b * BLOCK;
    codes_of(s, true, 0, u);
    uint32_t most = 0;
    for (int i = 0; i < BLOCK; ++i) most = max_of(most, u[i]);
    if (spec.width == 0 && n == BLOCK && most < 256) {
      // several counters per code: equal codes, as zeros are, would wait for each other
      for (int i = 0; i < BLOCK; ++i) ++small_[i % WAYS][u[i]];
      return;
    }
    for (int i = 0; i < n; ++i) ++found_[s[i] < 0 ? 512 : 256 + symbol_of(uint32_t(s[i]))];
    block_codes(spec, first, symbols, b, n, true, u);
    for (int i = 0; i < n; ++i) ++found_[symbol_of(u[i])];
  }

  void add_to(int64_t* counts) {
    for (uint32_t u = 0; u < 256; ++u)
      for (int way = 0; way < WAYS; ++way) {
        found_[symbol_of(u)] += small_[way][u];
        found_[u & 1 ? 512 : 256 + symbol_of(u >> 1)] += small_[way][u];
      }
    for (int s = 0; s < 513; ++s) atomic_add(counts + s, found_[s]);
  }

 private:
  static constexpr int WAYS = 4;
  uint32_t found_[513] = {}, small_[WAYS][256] = {};
};

}  // namespace bounded
ACTZIP_END
