// A chain of spans to bytes: coded symbols, and the extra bits of each span.
#pragma once

#include "dithered/symbols.hpp"

ACTZIP_BEGIN
namespace dithered {

constexpr int64_t EXTRA_ROOM = 2 * SPAN;  // bytes of extra bits that a span may have
constexpr int64_t MOST_EXTRA = 8 * EXTRA_ROOM * BLOCK / SPAN;  // bits of a block, with given tables
constexpr int64_t CODED_ROOM = entropy::MAX_CHAIN * (SPAN * entropy::SCALE_BITS / 8) + 4096;

// Memory of one thread. code: of the elements whose byte is 255.
struct Scratch {
  uint32_t code[SPAN];
  Marks marks;
  alignas(64) uint8_t bin[SPAN];
  uint8_t byte[SPAN + SLACK], parted[PARTED], symbol[SPAN + SLACK];
  uint8_t extra[entropy::MAX_CHAIN * EXTRA_ROOM], coded[CODED_ROOM];
};

struct Encoded {
  const uint8_t* coded;
  int64_t coded_bytes, extra_bytes;  // -1: too many extra bits
  int64_t extra[entropy::MAX_CHAIN];  // of each span
};

// 64 codes as bytes, of which 255 stands for all above; whether there is one.
inline bool to_bytes(const uint32_t* code, uint8_t* byte) {
#ifdef ACTZIP_DITHERED_WIDE
  const __m512i most = _mm512_set1_epi32(ESCAPE);
  __mmask16 large = 0;
  for (int i = 0; i < BLOCK; i += 16) {
    const __m512i here = _mm512_loadu_si512(code + i);
    large |= _mm512_cmpge_epu32_mask(here, most);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(byte + i), _mm512_cvtusepi32_epi8(here));
  }
  return large != 0;
#else
  uint32_t most = 0;
  for (int i = 0; i < BLOCK; ++i) most = max_of(most, code[i]);
  for (int i = 0; i < BLOCK; ++i) byte[i] = uint8_t(min_of<uint32_t>(code[i], ESCAPE));
  return most >= ESCAPE;
#endif
}

// Whether codes could take more extra bits than a block with given tables may.
inline bool too_many(const uint32_t* code, int count) {
  uint32_t any = 0;
  for (int i = 0; i < BLOCK; ++i) any |= code[i];
  if (any < ESCAPE) return false;  // 15 bits at most
  int64_t bits = 0;
  for (int i = 0; i < count; ++i) bits += 2 * (31 - __builtin_clz(code[i] + 1)) + 1;
  return bits > MOST_EXTRA;
}

// Codes and level of a chunk, and which of its blocks are raw: f(start, count, dither, codes) per
// block, with zeros for a raw one. `level`: the guess with which f is called; when it was another,
// f is called for the whole chunk once more.
template <class T, class F>
inline void quantize_chunk(const Spec& spec, const T* x, int64_t chunk, Grids<Real<T>>& grids, int& level,
                           uint64_t& raw, F&& f) {
  using R = Real<T>;
  const int64_t first = chunk * CHUNK;
  const int count = int(min_of<int64_t>(CHUNK, spec.n - first));
  for (;;) {
    R most = 0;
    raw = 0;
    Dither dither(spec, first);
    for (int i = 0; i < count; i += BLOCK) {
      alignas(64) R wide[BLOCK];
      alignas(64) uint32_t code[BLOCK];
      const int n = min_of(BLOCK, count - i);
      const Grid<R> grid = grids.at(first + i, level);
      dither.next();
      if (n == BLOCK) {
        load64(x + first + i, wide);
      } else {  // what is not there passes every check
        for (int j = 0; j < n; ++j) wide[j] = widen(x[first + i + j]);
        for (int j = n; j < BLOCK; ++j) wide[j] = spec.sides ? grid.origin[j] : R(0);
      }
      const bool good = quantize<R>(spec, wide, grid, dither.v, code, most);
      if (!good || (spec.given && too_many(code, n))) {
        raw |= uint64_t{1} << (i / BLOCK);
        std::memset(code, 0, sizeof code);
      }
      f(first + i, n, dither, code);
    }
    const int needed = level_of(spec.dtype, double(most));
    if (needed == level) return;
    level = needed;
  }
}

// Extra bits of the escaped codes of a span; how many bytes, -1 when there is no room.
inline int64_t write_extra(const Scratch& s, int64_t n, const Contexts& c, const Places& places, uint8_t* to) {
  BitWriter bits(to, EXTRA_ROOM);
  uint64_t escaped[SPAN_BLOCKS] = {};
  find_escaped(s.parted, s.marks, c, n, places, escaped);
  for (int64_t i = 0; i < n; i += BLOCK)
    for (uint64_t left = escaped[i / BLOCK]; left; left &= left - 1) {
      const int64_t at = i + __builtin_ctzll(left);
      bits.code(s.byte[at] == ESCAPE ? s.code[at] : s.byte[at]);
    }
  bits.finish();
  return bits.fits ? bits.at - to : -1;
}

// Symbols of a span from its codes, coded so that the words end at `to`; returns their begin.
inline uint8_t* encode_span(Scratch& s, int64_t n, const Contexts& c, int64_t nonzero,
                            const entropy::EncodeTable* tables, entropy::States& states, uint8_t* to,
                            uint8_t* extra, int64_t& extra_bytes) {
  const Places places(s.marks, c.count);
  spread(s.byte, s.marks, c, n, nonzero * 6 < n, places, s.parted);
  int64_t escaped = 0;
  // backwards, as the coder goes; the last group of a context is filled up with zeros
  for (int k = c.count - 1; k >= 0; --k) {
    uint8_t* const codes = s.parted + places.at[k];
    const int64_t count = s.marks.total[k];
    const int group = c.group[k];
    if (group == 1) {
      single_codes(codes, count, c.frequency[k], escaped);
      to = entropy::encode_span(codes, count, tables[k], states, to);
      continue;
    }
    std::memset(codes + count, 0, 8);
    int64_t symbols = 0;
    with_group(group, [&](auto g) {
      symbols = group_codes<decltype(g)::value>(codes, count, c.frequency[k], s.symbol, escaped);
    });
    to = entropy::encode_span(s.symbol, symbols, tables[k], states, to);
  }
  extra_bytes = escaped ? write_extra(s, n, c, places, extra) : 0;
  return to;
}

// Chain k, from its last span on. levels, raw: side information per chunk.
template <class T>
inline Encoded encode_chain(const Spec& spec, const T* x, int64_t k, const Contexts& c,
                            const entropy::EncodeTable* tables, Real<T>* table, uint8_t* levels,
                            uint8_t* raw, Scratch& s) {
  const int64_t first = k * c.chain, last = min_of(ceil_div(spec.n, SPAN), first + c.chain);
  entropy::States states;
  Grids<Real<T>> grids(spec, table);
  int level = 0;
  Encoded found{};
  uint8_t* const end = s.coded + CODED_ROOM;
  uint8_t* at = end;
  for (int64_t span = last - 1; span >= first; --span) {
    const int64_t begin = span * SPAN, n = min_of(SPAN, spec.n - begin);
    int64_t nonzero = 0;
    s.marks.clear();
    for (int64_t chunk = begin / CHUNK; chunk * CHUNK < begin + n; ++chunk) {
      uint64_t map;
      const auto take = [&](int64_t start, int, const Dither& dither, const uint32_t* code) {
        const int64_t at = start - begin;
        std::memcpy(s.bin + at, dither.bin, BLOCK);
        if (to_bytes(code, s.byte + at)) std::memcpy(s.code + at, code, BLOCK * sizeof *code);
      };
      quantize_chunk<T>(spec, x, chunk, grids, level, map, take);
      levels[chunk] = uint8_t(level);
      store_as(raw + 8 * chunk, map);
    }
    for (int64_t i = 0; i < n; i += BLOCK) {
      const int64_t count = min_of<int64_t>(BLOCK, n - i);
      s.marks.see(c, s.bin + i, i / BLOCK, count);
      nonzero += nonzero_of(s.byte + i, count);
    }
    int64_t bytes;
    at = encode_span(s, n, c, nonzero, tables, states, at, s.extra + (span - first) * EXTRA_ROOM, bytes);
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
