// How often each symbol of the entropy stage occurs: what the table is made from.
#pragma once

#include "bounded/squeeze.hpp"

ACTZIP_BEGIN
namespace bounded {

// Where the counts of each kind begin; NEGATIVE is one number, of negative symbols.
constexpr int AS_SIGNED = 0, AS_UNSIGNED = 256, AS_DIFFERENCES = 512;
constexpr int NEGATIVE = 768, COUNTS = 769;

// The looked-at chunk of each `every`: not always the same of them, since channels repeat.
inline int64_t looked_at(int64_t k, int64_t every, int64_t chunks) {
  const int64_t aside = int64_t(uint32_t(k) * 0x9e3779b1u >> 8) * every >> 24;
  return k * every + aside < chunks ? k * every + aside : k * every;
}

class Histogram {
 public:
  void add(const Spec& spec, int64_t first, const Symbols& symbols, int b, int n) {
    alignas(64) uint32_t u[BLOCK], d[BLOCK];
    const int32_t* const s = symbols.s + b * BLOCK;
    codes_of(s, true, 0, u);
    residuals(spec, first, symbols.s, b * BLOCK, n, d);
    uint32_t most = 0;
    for (int i = 0; i < BLOCK; ++i) most = max_of(most, u[i] | d[i]);
    if (n == BLOCK && most < 256) {
      // several counters per code: equal codes, as zeros are, would wait for each other
      for (int i = 0; i < BLOCK; ++i) ++small_[i % WAYS][u[i]], ++steps_[i % WAYS][d[i]];
      return;
    }
    for (int i = 0; i < n; ++i) {
      ++found_[AS_SIGNED + symbol_of(u[i])];
      ++found_[s[i] < 0 ? NEGATIVE : AS_UNSIGNED + symbol_of(uint32_t(s[i]))];
      ++found_[AS_DIFFERENCES + symbol_of(d[i])];
    }
  }

  void add_to(int64_t* counts) {
    for (uint32_t u = 0; u < 256; ++u)
      for (int way = 0; way < WAYS; ++way) {
        found_[AS_SIGNED + symbol_of(u)] += small_[way][u];
        found_[u & 1 ? NEGATIVE : AS_UNSIGNED + symbol_of(u >> 1)] += small_[way][u];
        found_[AS_DIFFERENCES + symbol_of(u)] += steps_[way][u];
      }
    for (int s = 0; s < COUNTS; ++s)
      if (found_[s] != 0) atomic_add(counts + s, found_[s]);
  }

 private:
  static constexpr int WAYS = 4;
  uint32_t found_[COUNTS] = {}, small_[WAYS][256] = {}, steps_[WAYS][256] = {};
};

}  // namespace bounded
ACTZIP_END
