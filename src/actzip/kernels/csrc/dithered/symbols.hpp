// How the codes of a context become symbols, a few of them one symbol, and what escapes.
#pragma once

#include "dithered/joined.hpp"

ACTZIP_BEGIN
namespace dithered {

// f(GroupTag<group>{}) for a valid group of several.
template <int N> struct GroupTag { static constexpr int value = N; };
template <class F>
inline void with_group(int group, F&& f) {
  switch (group) {
    case 2: return f(GroupTag<2>{});
    case 3: return f(GroupTag<3>{});
    case 4: return f(GroupTag<4>{});
    case 5: return f(GroupTag<5>{});
    default: return f(GroupTag<8>{});
  }
}

// Symbols of the n codes of a context, which are zero from n on for eight bytes; the codes of an
// escaped group become ESCAPE. Returns how many symbols there are.
//
// All G codes at once: byte G - 1 of the product is the sum of code k times base^k. It is below
// base^G <= 256 when codes are below the base, and so are the bytes before it: nothing carries.
template <int G>
inline int64_t group_codes(uint8_t* codes, int64_t n, const uint16_t* frequency, uint8_t* symbols,
                           int64_t& escaped) {
  constexpr uint64_t ones = 0x0101010101010101u, tops = 0x80 * ones;
  constexpr uint64_t those = G == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * G % 64)) - 1;
  constexpr uint64_t base = uint64_t(dithered_tables::base_of(G)), below = (128 - base) * ones;
  uint64_t powers = 0;
  for (uint64_t j = 0, power = 1; j < G; ++j, power *= base) powers |= power << (8 * (G - 1 - j));
  uint8_t lost[256];  // symbols that the table does not hold
  for (int s = 0; s < 256; ++s) lost[s] = s == ESCAPE || frequency[s] == 0;
  const auto one = [&](int64_t k) {
    const uint64_t group = load_as<uint64_t>(codes + k * G) & those;
    const bool large = ((((group & ~tops) + below) | group) & tops & those) != 0;
    const uint8_t found = uint8_t(group * powers >> (8 * (G - 1)));
    if (!large && !lost[found]) {
      symbols[k] = found;
      return;
    }
    symbols[k] = uint8_t(ESCAPE);
    for (int j = 0; j < G && k * G + j < n; ++j) codes[k * G + j] = ESCAPE;
    ++escaped;
  };
  const int64_t count = ceil_div(n, G);
  int64_t k = 0;
#ifdef __AVX2__
  constexpr int many = TOGETHER<G>;
  for (; k * G + VECTOR <= n; k += many) {
    join<G>(codes + k * G, symbols + k);
    uint8_t escape = !all_below(codes + k * G, many * G, int(base));
    for (int j = 0; j < many; ++j) escape |= lost[symbols[k + j]];
    if (escape)
      for (int j = 0; j < many; ++j) one(k + j);
  }
#endif
  for (; k < count; ++k) one(k);
  return count;
}

// The same for groups of one: codes are symbols.
inline void single_codes(uint8_t* codes, int64_t n, const uint16_t* frequency, int64_t& escaped) {
  uint8_t symbol[256];
  for (int s = 0; s < 256; ++s) symbol[s] = frequency[s] ? uint8_t(s) : uint8_t(ESCAPE);
  int64_t found = 0;
  for (int64_t k = 0; k < n; ++k) {
    codes[k] = symbol[codes[k]];
    found += codes[k] == ESCAPE;
  }
  escaped += found;
}

// The codes of each symbol of a context, eight bytes of which `group` count.
struct Spelling {
  uint64_t codes[256];
};

inline void spell(int group, Spelling& s) {
  const int base = dithered_tables::base_of(group);
  for (int symbol = 0; symbol < 256; ++symbol) {
    uint64_t codes = 0;
    int rest = symbol;
    for (int j = 0; j < group; ++j, rest /= base) codes |= uint64_t(rest % base) << (8 * j);
    s.codes[symbol] = symbol == ESCAPE ? ~uint64_t{0} : codes;
  }
}

// The codes of n symbols, and up to 64 bytes behind them.
template <int G>
inline void spell_codes(const uint8_t* symbols, int64_t n, const Spelling& spelling, uint8_t* to) {
#ifdef __AVX2__
  if constexpr (G == 2 || G == 4 || G == 8) {
    for (int64_t i = 0; i < n; i += VECTOR / G) part<G>(symbols + i, to + i * G);
    return;
  }
#endif
  for (int64_t i = 0; i < n; ++i) store_as(to + i * G, spelling.codes[symbols[i]]);
}

// Bits of escaped codes: when code + 1 has k + 1 bits, k zeros, a one and its low k bits.
struct BitWriter {
  uint8_t *at, *end;
  uint64_t held = 0;
  int bits = 0;
  bool fits = true;

  BitWriter(uint8_t* begin, int64_t room) : at(begin), end(begin + room) {}
  void put(uint64_t value, int count) {  // count <= 32
    held |= value << bits;
    bits += count;
    while (bits >= 8) byte();
  }
  void code(uint32_t code) {
    const uint32_t number = code + 1;
    const int k = 31 - __builtin_clz(number);
    put(0, k);
    put(uint64_t(number & ((1u << k) - 1)) << 1 | 1, k + 1);
  }
  void finish() {
    if (bits > 0) byte();
    bits = 0;
  }

 private:
  void byte() {
    if (at < end) *at++ = uint8_t(held);
    else fits = false;
    held >>= 8;
    bits -= 8;
  }
};

struct BitReader {
  const uint8_t *at, *end;
  int64_t bit = 0;
  bool sound = true;

  uint64_t peek() const {  // the next 57 bits or more; zeros behind the end
    const int64_t byte = bit / 8, left = (end - at) - byte;
    uint64_t word = 0;
    if (left >= 8) word = load_as<uint64_t>(at + byte);
    else if (left > 0) std::memcpy(&word, at + byte, size_t(left));
    return word >> (bit % 8);
  }
  uint32_t code() {
    const uint64_t word = peek();
    const int k = word ? __builtin_ctzll(word) : 64;
    if (k > 31 || bit + 2 * k + 1 > 8 * (end - at)) {
      sound = false;
      return 0;
    }
    bit += k + 1;
    const uint32_t low = uint32_t(peek()) & uint32_t((uint64_t{1} << k) - 1);
    bit += k;
    return (uint32_t(1) << k) + low - 1;
  }
  void finish() { bit = ceil_div(bit, 8) * 8; }
};

}  // namespace dithered
ACTZIP_END
