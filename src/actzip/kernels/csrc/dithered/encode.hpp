// A chain of spans to bytes: coded symbols, and the extra bits of each span.
#pragma once

#include "dithered/contexts.hpp"

ACTZIP_BEGIN
namespace dithered {

using entropy::SPAN;
constexpr int64_t EXTRA_ROOM = 2 * SPAN;  // bytes of extra bits that a span may have
constexpr int64_t SLACK = 64;
constexpr int64_t CODED_ROOM = entropy::MAX_CHAIN * (SPAN * entropy::SCALE_BITS / 8) + 4096;

// Memory of one thread.
struct Scratch {
  uint32_t code[SPAN];
  uint8_t context[SPAN], byte[SPAN + SLACK], symbol[SPAN + SLACK];
  uint8_t extra[entropy::MAX_CHAIN * EXTRA_ROOM], coded[CODED_ROOM];
};

struct Encoded {
  const uint8_t* coded;
  int64_t coded_bytes, extra_bytes;  // -1: too many extra bits
  int64_t extra[entropy::MAX_CHAIN];  // of each span
};

// Codes and level of a chunk, and which of its blocks are raw. f(start, count, v, codes) per block.
template <class T, class F>
inline int quantize_chunk(const Spec& spec, const T* x, int64_t chunk, uint64_t& raw, F&& f) {
  using R = Real<T>;
  const int64_t first = chunk * CHUNK;
  const int count = int(min_of<int64_t>(CHUNK, spec.n - first));
  alignas(64) R wide[CHUNK];
  for (int i = 0; i < count; ++i) wide[i] = widen(x[first + i]);
  Grid<R> grid;
  bounded::IntOf<R> most = 0;
  for (int i = 0; i < count; i += BLOCK) {
    fill_grid(spec, first + i, 0, grid);
    most = largest_ratio(spec, wide + i, min_of(BLOCK, count - i), grid, most);
  }
  const int level = bounded::level_of<T>(double(bit_cast<R>(most)));
  raw = 0;
  for (int i = 0; i < count; i += BLOCK) {
    alignas(64) float v[BLOCK];
    alignas(64) uint32_t code[BLOCK];
    const int n = min_of(BLOCK, count - i);
    fill_grid(spec, first + i, level, grid);
    fill_dither(spec, first + i, v);
    if (!quantize<T>(spec, wide + i, n, grid, v, code)) {
      raw |= uint64_t{1} << (i / BLOCK);
      for (int j = 0; j < n; ++j) code[j] = 0;
    }
    f(first + i, n, v, code);
  }
  return level;
}

// Extra bits of the escaped codes of a span; how many bytes, -1 when there is no room.
inline int64_t write_extra(const Scratch& s, int64_t n, const Places& places, int64_t contexts,
                           uint8_t* to) {
  BitWriter bits(to, EXTRA_ROOM);
  Cursor next(places);
  for (int64_t i = 0; i < n; i += BLOCK) {
    alignas(64) uint32_t found[BLOCK];
    const int64_t count = min_of<int64_t>(BLOCK, n - i);
    if (collect(s.byte, s.context + i, count, contexts, next, found) < ESCAPE) continue;
    for (int64_t j = 0; j < count; ++j)
      if (found[j] == ESCAPE) bits.code(s.code[i + j]);
  }
  bits.finish();
  return bits.fits ? bits.at - to : -1;
}

// Symbols of a span from its codes, coded so that the words end at `to`; returns their begin.
inline uint8_t* encode_span(Scratch& s, int64_t n, const Contexts& c,
                            const entropy::EncodeTable* tables, entropy::States& states, uint8_t* to,
                            uint8_t* extra, int64_t& extra_bytes) {
  const Places places(s.context, n, c.count);
  Cursor next(places);
  spread(s.code, s.context, n, c.count, next, s.byte);
  int64_t escaped = 0;
  // backwards, as the coder goes; the last group of a context is filled up with zeros
  for (int64_t k = c.count - 1; k >= 0; --k) {
    uint8_t* const codes = s.byte + places.at[k];
    const int64_t count = places.at[k + 1] - places.at[k];
    const uint16_t* const frequency = c.frequency + 256 * k;
    const int group = c.group[k];
    if (group == 1) {
      single_codes(codes, count, frequency, escaped);
      to = entropy::encode_span(codes, count, tables[k], states, to);
      continue;
    }
    uint64_t behind;
    std::memcpy(&behind, codes + count, 8);
    std::memset(codes + count, 0, 8);
    int64_t symbols = 0;
    with_group(group, [&](auto g) {
      symbols = group_codes<decltype(g)::value>(codes, count, base_of(group), frequency, s.symbol,
                                                escaped);
    });
    std::memcpy(codes + count, &behind, 8);
    to = entropy::encode_span(s.symbol, symbols, tables[k], states, to);
  }
  extra_bytes = escaped ? write_extra(s, n, places, c.count, extra) : 0;
  return to;
}

// Chain k, from its last span on. levels, raw: side information per chunk.
template <class T>
inline Encoded encode_chain(const Spec& spec, const T* x, int64_t k, const Contexts& c,
                            const entropy::EncodeTable* tables, uint8_t* levels, uint8_t* raw,
                            Scratch& s) {
  const int64_t first = k * c.chain, last = min_of(ceil_div(spec.n, SPAN), first + c.chain);
  entropy::States states;
  const Bins bins(c.bin);
  Encoded found{};
  uint8_t* const end = s.coded + CODED_ROOM;
  uint8_t* at = end;
  for (int64_t span = last - 1; span >= first; --span) {
    const int64_t begin = span * SPAN, n = min_of(SPAN, spec.n - begin);
    for (int64_t chunk = begin / CHUNK; chunk * CHUNK < begin + n; ++chunk) {
      uint64_t map;
      levels[chunk] = uint8_t(quantize_chunk<T>(
          spec, x, chunk, map, [&](int64_t start, int count, const float* v, const uint32_t* code) {
            std::memcpy(s.code + (start - begin), code, size_t(count) * sizeof *code);
            contexts_of(v, bins, s.context + (start - begin));
          }));
      store_as(raw + 8 * chunk, map);
    }
    int64_t bytes;
    at = encode_span(s, n, c, tables, states, at, s.extra + (span - first) * EXTRA_ROOM, bytes);
    found.extra[span - first] = bytes;
    found.extra_bytes = bytes < 0 || found.extra_bytes < 0 ? -1 : found.extra_bytes + bytes;
  }
  at = states.store(at);
  found.coded = at;
  found.coded_bytes = end - at;
  return found;
}

// Coded symbols, then the extra bits of each span.
inline void put_chain(const Encoded& e, const Scratch& s, uint8_t* to) {
  copy(to, e.coded, e.coded_bytes);
  to += e.coded_bytes;
  for (int64_t j = 0; j < entropy::MAX_CHAIN; ++j) {
    copy(to, s.extra + j * EXTRA_ROOM, e.extra[j]);
    to += e.extra[j];
  }
}

}  // namespace dithered
ACTZIP_END
