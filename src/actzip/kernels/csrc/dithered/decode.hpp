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
  for (int k = 0; k < c.count; ++k) {
    if (!entropy::make_decode(c.frequency[k], t.table[k])) return false;
    spell(c.group[k], t.spelling[k]);
  }
  return true;
}

// Memory of one thread.
struct Span {
  Marks marks;
  uint8_t parted[PARTED], symbol[SPAN + SLACK];
};

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

// The bytes of all codes of a span, context by context.
inline bool decode_codes(Span& s, const Places& places, const Contexts& c, const Tables& t,
                         entropy::Words& words) {
  for (int k = 0; k < c.count; ++k) {
    const int group = c.group[k];
    uint8_t* to = s.parted + places.at[k];
    words.n = ceil_div(s.marks.total[k], group);
    words.symbols = group == 1 ? to : s.symbol;
    if (!decode_symbols(words, t.table[k])) return false;
    if (group == 1) continue;
    with_group(group, [&](auto g) { spell_codes<decltype(g)::value>(s.symbol, words.n, t.spelling[k], to); });
  }
  return true;
}

// Values from the bytes of their codes, with extra bits for what escaped.
template <class T>
inline bool decode_values(const Spec& spec, int64_t begin, int64_t n, Collector next, Grids<Real<T>>& grids,
                          const uint8_t* levels, BitReader& bits, T* out, bool stream) {
  using R = Real<T>;
  Dither dither(spec, begin);
  for (int64_t i = 0; i < n; i += BLOCK) {
    alignas(64) uint8_t byte[BLOCK];
    alignas(64) uint32_t code[BLOCK];
    alignas(64) R wide[BLOCK];
    const int count = int(min_of<int64_t>(BLOCK, n - i));
    next.block(i / BLOCK, count, byte);
    for (int j = 0; j < BLOCK; ++j) code[j] = byte[j];
    if (holds_escaped(byte))
      for (int j = 0; j < count; ++j)
        if (code[j] == ESCAPE) code[j] = bits.code();
    const int64_t start = begin + i;
    dither.next();
    dequantize<R>(spec, code, grids.at(start, levels[start / CHUNK]), dither.v, wide);
    if (count == BLOCK) {
      store64(out + start, wide, stream);
      continue;
    }
    for (int j = 0; j < count; ++j) out[start + j] = narrow<T>(wide[j]);
  }
  bits.finish();
  return bits.sound;
}

inline bool is_raw(const uint8_t* raw, int64_t block) { return raw[block / 8] >> (block % 8) & 1; }

// The raw blocks of chain k: f(block, its bytes, where they are among all of these). Returns the sum.
template <class F>
inline int64_t each_raw(const Spec& spec, int64_t k, int64_t chain, const uint8_t* raw, int64_t item, F&& f) {
  const int64_t per = chain * SPAN / CHUNK, end = min_of(ceil_div(spec.n, CHUNK), (k + 1) * per);
  int64_t at = 0;
  for (int64_t chunk = k * per; chunk < end; ++chunk)
    for (uint64_t left = load_as<uint64_t>(raw + 8 * chunk); left; left &= left - 1) {
      const int64_t block = chunk * BLOCKS_PER_CHUNK + __builtin_ctzll(left);
      const int64_t bytes = min_of<int64_t>(BLOCK, spec.n - block * BLOCK) * item;
      f(block, bytes, at);
      at += bytes;
    }
  return at;
}
inline int64_t raw_bytes(const Spec& spec, int64_t k, int64_t chain, const uint8_t* raw) {
  return each_raw(spec, k, chain, raw, itemsize(spec.dtype), [](int64_t, int64_t, int64_t) {});
}

template <class T>
inline bool decode_chain(const Spec& spec, int64_t k, const Contexts& c, const Tables& t, Real<T>* table,
                         const uint8_t* levels, const uint8_t* raw, const uint8_t* data, int64_t coded,
                         int64_t length, Span& s, T* out, bool stream) {
  const int64_t kept = raw_bytes(spec, k, c.chain, raw);
  if (coded < 0 || kept > length - coded) return false;
  const int64_t first = k * c.chain, last = min_of(ceil_div(spec.n, SPAN), first + c.chain);
  entropy::States states;
  const uint8_t* const at = states.load(data, data + coded);
  if (!at) return false;
  entropy::Words words{at, data + coded, 0, nullptr, &states};
  BitReader bits{data + coded, data + length - kept};
  Grids<Real<T>> grids(spec, table);
  for (int64_t span = first; span < last; ++span) {
    const int64_t begin = span * SPAN, n = min_of(SPAN, spec.n - begin);
    s.marks.clear();
    Dither dither(spec, begin);
    for (int64_t i = 0; i < n; i += BLOCK) {
      dither.next_bins();
      s.marks.see(c, dither.bin, i / BLOCK, min_of<int64_t>(BLOCK, n - i));
    }
    const Places places(s.marks, c.count);
    if (!decode_codes(s, places, c, t, words)) return false;
    const Collector next(s.parted, s.marks, c, places);
    if (!decode_values<T>(spec, begin, n, next, grids, levels, bits, out, stream)) return false;
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
