// Bounded with the entropy stage: the codes of a span of 16 chunks, as symbols of one byte.
//
// A code below 64 is its own symbol. Larger ones share a symbol with their neighbours, eight per
// octave, and the low bits follow uncoded. Symbol 255 stands for all that the table does not
// hold, with the whole code behind it.
#pragma once

#include "bounded/decode.hpp"
#include "bounded/encode.hpp"
#include "entropy/rans.hpp"

ACTZIP_BEGIN
namespace bounded {

constexpr int DIRECT = 64;
constexpr uint8_t ESCAPE = 255;
constexpr int CHUNKS_PER_SPAN = int(entropy::SPAN / CHUNK);
constexpr int64_t EXTRA_ROOM = 2 * entropy::SPAN;

// What is coded: symbols of which none is negative, any symbols (zigzag), or what the Lorenzo
// prediction leaves of them.
enum Kind : int64_t { UNSIGNED = 0, SIGNED = 1, DIFFERENCES = 2 };

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
                        Kind kind, uint32_t* u) {
  if (kind == DIFFERENCES)
    residuals(spec, first, symbols.s, b * BLOCK, n, u);
  else
    codes_of(symbols.s + b * BLOCK, kind == SIGNED, 0, u);
}

// Bits from the lowest on. Memory from `at` is to hold 8 bytes more than the limit.
struct BitWriter {
  uint8_t *at, *limit;
  uint64_t held = 0;
  int bits = 0;
  bool full = false;  // known for sure after finish

  void put(uint32_t value, int width) {
    held |= uint64_t{value} << bits;
    bits += width;
    if (bits < 32) return;
    full |= at > limit;
    if (full) at = limit;  // nothing of this will be used
    store_as(at, uint32_t(held));
    at += 4;
    held >>= 32;
    bits -= 32;
  }

  void finish() {
    for (; bits > 0; bits -= 8, held >>= 8) *at++ = uint8_t(held);
    full |= at > limit;
  }
};

struct BitReader {
  const uint8_t *at, *end;
  uint64_t held = 0;
  int bits = 0;
  bool empty = false;

  uint32_t take(int width) {
    if (bits < width) fill(width);
    const uint32_t value = uint32_t(held & ((uint64_t{1} << width) - 1));
    held >>= width;
    bits -= width;
    return value;
  }

  // A whole word where there is one: what does not count yet is read again, to the same place.
  void fill(int width) {
    if (end - at >= 8) {
      held |= load_as<uint64_t>(at) << bits;
      at += (63 - bits) >> 3;
      bits |= 56;
      return;
    }
    for (; bits < width; bits += 8) {
      empty |= at == end;
      if (at != end) held |= uint64_t{*at++} << bits;
    }
  }
};

// Codes that are symbols of the table, without a gap: zero is often missing, as with dither it
// stands for nothing but zeros.
struct Direct {
  uint32_t first = 0, count = 0;
};

inline Direct direct_codes(const uint16_t* frequency) {
  Direct d;
  while (d.first < DIRECT && frequency[d.first] == 0) ++d.first;
  while (d.first + d.count < DIRECT && frequency[d.first + d.count] > 0) ++d.count;
  return d;
}

// Which of the 64 codes are not in d.
inline uint64_t outside(const uint32_t* u, Direct d) {
  uint64_t mask = 0;
#ifdef ACTZIP_BOUNDED_WIDE
  const __m512i first = _mm512_set1_epi32(int(d.first)), count = _mm512_set1_epi32(int(d.count));
  for (int i = 0; i < BLOCK; i += 16) {
    const __m512i place = _mm512_sub_epi32(_mm512_loadu_si512(u + i), first);
    mask |= uint64_t{_mm512_cmpge_epu32_mask(place, count)} << i;
  }
#else
  uint32_t most = 0;
  for (int i = 0; i < BLOCK; ++i) most = max_of(most, u[i] - d.first);
  if (most < d.count) return 0;
  for (int i = 0; i < BLOCK; ++i) mask |= uint64_t{u[i] - d.first >= d.count} << i;
#endif
  return mask;
}

// Symbols of one block.
inline void put_block(const uint32_t* u, int n, const uint16_t* frequency, Direct direct,
                      uint8_t* symbols, BitWriter& extra) {
  for (int i = 0; i < BLOCK; ++i) symbols[i] = uint8_t(u[i]);
  for (uint64_t odd = outside(u, direct) & first_bits(n); odd != 0; odd &= odd - 1) {
    const int i = __builtin_ctzll(odd);
    const uint8_t found = symbol_of(u[i]);
    symbols[i] = frequency[found] == 0 ? ESCAPE : found;
    const int width = extra_bits(symbols[i]);
    if (width > 0) extra.put(width == 32 ? u[i] : u[i] & ((1u << width) - 1), width);
  }
}

inline bool take_block(const uint8_t* symbols, int n, BitReader& extra, uint32_t* u) {
  for (int i = 0; i < BLOCK; ++i) u[i] = symbols[i];
  for (uint64_t odd = outside(u, Direct{0, DIRECT}) & first_bits(n); odd != 0; odd &= odd - 1) {
    const int i = __builtin_ctzll(odd);
    u[i] = base_of(symbols[i]) + extra.take(extra_bits(symbols[i]));
  }
  return !extra.empty;
}

}  // namespace bounded
ACTZIP_END
