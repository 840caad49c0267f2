// Bounded with the entropy stage: the codes of a span of 16 chunks, as symbols of one byte.
//
// A code below 64 is its own symbol. Larger ones share a symbol with their neighbours, eight per
// octave, and the low bits follow uncoded. Symbol 255 stands for all that the table does not
// hold, with the whole code behind it.
#pragma once

#include "bounded_decode.hpp"
#include "bounded_encode.hpp"
#include "entropy_rans.hpp"

ACTZIP_BEGIN
namespace bounded {

constexpr int DIRECT = 64;
constexpr uint8_t ESCAPE = 255;
constexpr int CHUNKS_PER_SPAN = int(entropy::SPAN / CHUNK);
constexpr int64_t EXTRA_ROOM = 2 * entropy::SPAN;

inline uint8_t symbol_of(uint32_t u) {
  if (u < DIRECT) return uint8_t(u);
  const int e = bit_width(u) - 1;
  return e > 29 ? ESCAPE : uint8_t(DIRECT + (e - 6) * 8 + (u >> (e - 3) & 7));
}

inline int extra_bits(uint8_t symbol) {
  if (symbol < DIRECT) return 0;
  return symbol == ESCAPE ? 32 : (symbol - DIRECT) / 8 + 3;
}

// The smallest code with this symbol.
inline uint32_t base_of(uint8_t symbol) {
  if (symbol < DIRECT) return symbol;
  if (symbol == ESCAPE) return 0;
  const uint32_t place = symbol - uint32_t(DIRECT);
  return (8 + place % 8) << (place / 8 + 3);
}

// The 64 codes of block b. A raw block counts as zeros; unsigned codes of negative symbols are
// large and go to the escape.
inline void block_codes(const Spec& spec, int64_t first, const Symbols& symbols, int b, int n,
                        bool is_signed, uint32_t* u) {
  if (spec.width > 0)
    residuals(spec, first, symbols.s, b * BLOCK, n, u);
  else
    codes_of(symbols.s + b * BLOCK, is_signed, 0, u);
}

struct BitWriter {
  uint8_t* at;
  const uint8_t* end;
  uint64_t held = 0;
  int bits = 0;
  bool full = false;

  void put(uint32_t value, int width) {
    if (full) return;
    held |= uint64_t{value} << bits;
    for (bits += width; bits >= 8; bits -= 8, held >>= 8) {
      if (at == end) {
        full = true;
        return;
      }
      *at++ = uint8_t(held);
    }
  }

  void finish() { put(0, (8 - bits) & 7); }
};

struct BitReader {
  const uint8_t *at, *end;
  uint64_t held = 0;
  int bits = 0;
  bool empty = false;

  uint32_t take(int width) {
    for (; bits < width; bits += 8) {
      empty |= at == end;
      if (at != end) held |= uint64_t{*at++} << bits;
    }
    const uint32_t value = uint32_t(held & ((uint64_t{1} << width) - 1));
    held >>= width;
    bits -= width;
    return value;
  }
};

// Symbols of one block; `dense` is how many symbols from 0 on the table holds without a gap.
inline void put_block(const uint32_t* u, int n, const uint16_t* frequency, uint32_t dense,
                      uint8_t* symbols, BitWriter& extra) {
  uint32_t all = 0;
  for (int i = 0; i < BLOCK; ++i) all = max_of(all, u[i]);
  if (all < dense) {
    for (int i = 0; i < BLOCK; ++i) symbols[i] = uint8_t(u[i]);
    return;
  }
  for (int i = 0; i < n; ++i) {
    const uint8_t found = symbol_of(u[i]);
    symbols[i] = frequency[found] == 0 ? ESCAPE : found;
    const int width = extra_bits(symbols[i]);
    if (width > 0) extra.put(width == 32 ? u[i] : u[i] & ((1u << width) - 1), width);
  }
}

inline bool take_block(const uint8_t* symbols, int n, BitReader& extra, uint32_t* u) {
  uint8_t all = 0;
  for (int i = 0; i < BLOCK; ++i) all = max_of(all, symbols[i]);
  for (int i = 0; i < BLOCK; ++i) u[i] = symbols[i];
  if (all < DIRECT) return true;
  for (int i = 0; i < n; ++i)
    if (symbols[i] >= DIRECT) u[i] = base_of(symbols[i]) + extra.take(extra_bits(symbols[i]));
  return !extra.empty;
}

}  // namespace bounded
ACTZIP_END
