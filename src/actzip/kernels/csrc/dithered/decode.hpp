// A chain of spans back to values; false wherever bytes are no encoder's.
#pragma once

#include "dithered/encode.hpp"

ACTZIP_BEGIN
namespace dithered {

// What contexts need for decoding.
struct Tables {
  entropy::DecodeTable table[CONTEXTS];
  Spelling spelling[CONTEXTS];
};

inline bool make_tables(const Contexts& c, Tables& t) {
  for (int64_t k = 0; k < c.count; ++k) {
    if (!entropy::make_decode(c.frequency + 256 * k, t.table[k])) return false;
    spell(c.group[k], t.spelling[k]);
  }
  return true;
}

// n symbols from words that go on behind them; where these may run short, one by one.
inline bool decode_symbols(entropy::Words& w, const entropy::DecodeTable& t) {
  const int64_t whole = w.n / entropy::STATES * entropy::STATES;
  int64_t done = entropy::decode_rows(w, 0, whole, t);
  for (; done < w.n && w.at; done += entropy::STATES) {
    const int count = int(min_of<int64_t>(entropy::STATES, w.n - done));
    w.at = entropy::decode_some(w.symbols + done, count, t, w.states->x, w.at, w.end);
  }
  return w.at != nullptr;
}

struct Span {
  alignas(64) uint8_t context[SPAN], byte[SPAN + SLACK], symbol[SPAN + SLACK];
};

// The bytes of all codes of a span, context by context.
inline bool decode_codes(Span& s, const Places& places, const Contexts& c, const Tables& t,
                         entropy::Words& words) {
  for (int64_t k = 0; k < c.count; ++k) {
    const int64_t count = places.at[k + 1] - places.at[k];
    const int group = c.group[k];
    uint8_t* to = s.byte + places.at[k];
    words.n = ceil_div(count, group);
    words.symbols = group == 1 ? to : s.symbol;
    if (!decode_symbols(words, t.table[k])) return false;
    if (group == 1) continue;
    const uint64_t* const codes = t.spelling[k].codes;
    for (int64_t i = 0; i < words.n; ++i, to += group) store_as(to, codes[s.symbol[i]]);
  }
  return true;
}

// Values from the bytes of their codes, with extra bits for what escaped.
template <class T>
inline bool decode_values(const Spec& spec, int64_t begin, int64_t n, const Span& s,
                          const Places& places, int64_t contexts, const uint8_t* levels,
                          BitReader& bits, T* out) {
  Cursor next(places);
  Grid<Real<T>> grid;
  for (int64_t i = 0; i < n; i += BLOCK) {
    alignas(64) uint32_t code[BLOCK] = {};
    alignas(64) float v[BLOCK];
    const int count = int(min_of<int64_t>(BLOCK, n - i));
    if (collect(s.byte, s.context + i, count, contexts, next, code) == ESCAPE)
      for (int j = 0; j < count; ++j)
        if (code[j] == ESCAPE) code[j] = bits.code();
    const int64_t start = begin + i;
    fill_grid(spec, start, levels[start / CHUNK], grid);
    fill_dither(spec, start, v);
    if (count == BLOCK) {
      dequantize<T>(spec, code, grid, v, out + start);
      continue;
    }
    alignas(64) T last[BLOCK];
    dequantize<T>(spec, code, grid, v, last);
    std::memcpy(out + start, last, size_t(count) * sizeof(T));
  }
  bits.finish();
  return bits.sound;
}

inline void fill_contexts(const Spec& spec, int64_t begin, int64_t n, const Bins& bins, uint8_t* to) {
  for (int64_t i = 0; i < n; i += BLOCK) {
    alignas(64) float v[BLOCK];
    fill_dither(spec, begin + i, v);
    contexts_of(v, bins, to + i);
  }
}

inline bool is_raw(const uint8_t* raw, int64_t block) { return raw[block / 8] >> (block % 8) & 1; }

// Elements of a block: 64, fewer in the last.
inline int64_t length_of(const Spec& spec, int64_t block) {
  return min_of<int64_t>(BLOCK, spec.n - block * BLOCK);
}

// Bytes of the raw blocks of chain k.
inline int64_t raw_bytes(const Spec& spec, int64_t k, int64_t chain, const uint8_t* raw, int64_t item) {
  const int64_t per = chain * SPAN / BLOCK, end = min_of(ceil_div(spec.n, BLOCK), (k + 1) * per);
  int64_t bytes = 0;
  for (int64_t b = k * per; b < end; ++b)
    if (is_raw(raw, b)) bytes += length_of(spec, b) * item;
  return bytes;
}

// The values of raw blocks of chain k: f(block, bytes, where they are among all of these).
template <class F>
inline void each_raw(const Spec& spec, int64_t k, int64_t chain, const uint8_t* raw, int64_t item, F&& f) {
  const int64_t per = chain * SPAN / BLOCK, end = min_of(ceil_div(spec.n, BLOCK), (k + 1) * per);
  int64_t at = 0;
  for (int64_t b = k * per; b < end; ++b) {
    if (!is_raw(raw, b)) continue;
    const int64_t bytes = length_of(spec, b) * item;
    f(b, bytes, at);
    at += bytes;
  }
}

template <class T>
inline bool decode_chain(const Spec& spec, int64_t k, const Contexts& c, const Tables& t,
                         const uint8_t* levels, const uint8_t* raw, const uint8_t* data,
                         int64_t coded, int64_t length, T* out) {
  const int64_t kept = raw_bytes(spec, k, c.chain, raw, sizeof(T));
  if (coded < 0 || kept > length - coded) return false;
  const int64_t first = k * c.chain, last = min_of(ceil_div(spec.n, SPAN), first + c.chain);
  entropy::States states;
  const uint8_t* const at = states.load(data, data + coded);
  if (!at) return false;
  entropy::Words words{at, data + coded, 0, nullptr, &states};
  BitReader bits{data + coded, data + length - kept};
  const Bins bins(c.bin);
  Span s;
  for (int64_t span = first; span < last; ++span) {
    const int64_t begin = span * SPAN, n = min_of(SPAN, spec.n - begin);
    fill_contexts(spec, begin, n, bins, s.context);
    const Places places(s.context, n, c.count);
    if (!decode_codes(s, places, c, t, words)) return false;
    if (!decode_values<T>(spec, begin, n, s, places, c.count, levels, bits, out)) return false;
  }
  if (words.at != words.end || !states.at_rest()) return false;
  if (bits.bit != 8 * (bits.end - bits.at)) return false;
  each_raw(spec, k, c.chain, raw, sizeof(T), [&](int64_t b, int64_t bytes, int64_t from) {
    std::memcpy(out + b * BLOCK, bits.end + from, size_t(bytes));
  });
  return true;
}

}  // namespace dithered
ACTZIP_END
