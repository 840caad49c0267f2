// One span of Bounded with the entropy stage: values to bytes and back.
//
//   uint32 length of the coded symbols | coded symbols | extra bits | the values of raw blocks
//
// The spans of a chain are coded from the last to the first and decoded from the first on.
#pragma once

#include "bounded_rans.hpp"
#include "bounded_squeeze.hpp"

ACTZIP_BEGIN
namespace bounded {

// What a span is coded with, and where its side information goes.
struct Squeeze {
  const uint16_t* frequency;
  Kind kind;
  int64_t chain;      // spans that share the coder's states
  uint8_t* levels;    // one per chunk
  uint8_t* raw;       // a uint64 per chunk, a bit per block
};

// Bytes of a span without its raw values; `begin` has them in `room`.
struct Squeezed {
  alignas(64) uint8_t symbols[entropy::SPAN + BLOCK];
  alignas(64) uint8_t room[4 + entropy::SPAN_ROOM + EXTRA_ROOM + 8];
  uint8_t* begin;
  int64_t bytes;      // -1: more extra bits than there is room for
  int64_t raw_bytes;
};

inline int64_t raw_values(uint64_t raw, int n) {
  const int last = (n - 1) / BLOCK;
  const bool cut = raw >> last & 1;
  return int64_t(__builtin_popcountll(raw)) * BLOCK - (cut ? (last + 1) * BLOCK - n : 0);
}

// Bytes of the raw blocks of a span.
template <class T>
inline int64_t raw_bytes(const Spec& spec, int64_t span, const uint8_t* raw) {
  int64_t values = 0;
  const int64_t first = span * CHUNKS_PER_SPAN;
  for (int64_t c = first; c < min_of(first + CHUNKS_PER_SPAN, ceil_div(spec.n, CHUNK)); ++c)
    values += raw_values(load_as<uint64_t>(raw + 8 * c), int(min_of<int64_t>(CHUNK, spec.n - c * CHUNK)));
  return values * int64_t(sizeof(T));
}

template <class T, bool DITHER>
inline void squeeze_span(const Spec& spec, const T* x, int64_t span, const Squeeze& how,
                         const entropy::EncodeTable& table, entropy::States& states,
                         Squeezed& out) {
  Symbols symbols;
  alignas(64) uint32_t u[BLOCK];
  const Direct direct = direct_codes(how.frequency);
  uint8_t* const middle = out.room + 4 + entropy::SPAN_ROOM;
  BitWriter extra{middle, middle + EXTRA_ROOM};
  const int64_t start = span * entropy::SPAN, count = min_of(entropy::SPAN, spec.n - start);
  out.raw_bytes = 0;
  for (int64_t done = 0; done < count; done += CHUNK) {
    const int n = int(min_of<int64_t>(CHUNK, count - done));
    const int64_t c = (start + done) / CHUNK;
    quantize_from<T, DITHER>(spec, start + done, x + start + done, n, symbols);
    how.levels[c] = uint8_t(symbols.level);
    store_as(how.raw + 8 * c, symbols.raw);
    out.raw_bytes += raw_values(symbols.raw, n) * int64_t(sizeof(T));
    for (int b = 0; b * BLOCK < n; ++b) {
      const int here = min_of(BLOCK, n - b * BLOCK);
      block_codes(spec, start + done, symbols, b, here, how.kind, u);
      put_block(u, here, how.frequency, direct, out.symbols + done + b * BLOCK, extra);
    }
  }
  extra.finish();
  out.begin = encode_symbols(out.symbols, count, table, states, middle);
  if (span % how.chain == 0) out.begin = states.store(out.begin);
  const int64_t coded = middle - out.begin;
  store_as(out.begin -= 4, uint32_t(coded));
  out.bytes = extra.full ? -1 : extra.at - out.begin;
}

template <class T>
inline void copy_raw(const Spec& spec, const T* x, int64_t span, const uint8_t* raw, uint8_t* to) {
  const int64_t first = span * CHUNKS_PER_SPAN;
  const int64_t last = min_of(first + CHUNKS_PER_SPAN, ceil_div(spec.n, CHUNK));
  for (int64_t c = first; c < last; ++c)
    for (uint64_t bits = load_as<uint64_t>(raw + 8 * c); bits != 0; bits &= bits - 1) {
      const int64_t at = c * CHUNK + __builtin_ctzll(bits) * BLOCK;
      const size_t bytes = size_t(min_of<int64_t>(BLOCK, spec.n - at)) * sizeof(T);
      std::memcpy(to, x + at, bytes);
      to += bytes;
    }
}

// Symbols of a chunk from what the coder gave; false when extra bits run out.
inline bool expand_chunk(const Spec& spec, int64_t first, int n, const uint8_t* coded,
                         Kind kind, BitReader& extra, int32_t* s) {
  alignas(64) uint32_t u[BLOCK];
  for (int b = 0; b * BLOCK < n; ++b) {
    const int here = min_of(BLOCK, n - b * BLOCK);
    uint32_t* const codes = kind == DIFFERENCES ? u : reinterpret_cast<uint32_t*>(s + b * BLOCK);
    if (!take_block(coded + b * BLOCK, here, extra, codes)) return false;
    if (kind == DIFFERENCES)
      unpredict(spec, first, u, b * BLOCK, here, s);
    else if (kind == SIGNED)
      for (int i = 0; i < BLOCK; ++i) codes[i] = unzigzag(codes[i]);
    for (int i = here; i < BLOCK; ++i) s[b * BLOCK + i] = 0;
  }
  return true;
}

// Copies the raw blocks of a chunk; null when bytes run out or a block is not there.
template <class T>
inline const uint8_t* restore_raw(uint64_t raw, int n, const uint8_t* at, const uint8_t* end, T* out) {
  for (; raw != 0; raw &= raw - 1) {
    const int place = __builtin_ctzll(raw) * BLOCK;
    if (place >= n) return nullptr;
    const int64_t bytes = min_of(BLOCK, n - place) * int64_t(sizeof(T));
    if (end - at < bytes) return nullptr;
    std::memcpy(out + place, at, size_t(bytes));
    at += bytes;
  }
  return at;
}

// The parts of a span that is being decoded.
struct Opened {
  alignas(64) uint8_t coded[entropy::SPAN + BLOCK];
  BitReader extra;
  const uint8_t *kept, *end;  // the values of raw blocks
};

// Where the parts are; `words` is what the coder's symbols are to be read from. False for bytes that
// no encoder writes.
template <class T>
inline bool open_span(const Spec& spec, int64_t span, const Squeeze& how, entropy::States& states,
                      const uint8_t* at, const uint8_t* end, Opened& out, entropy::Words& words) {
  const int64_t count = min_of(entropy::SPAN, spec.n - span * entropy::SPAN);
  const int64_t kept = raw_bytes<T>(spec, span, how.raw);
  if (end - at < 4 || kept < 0 || end - at - 4 < kept) return false;
  const int64_t length = load_as<uint32_t>(at);
  out.kept = end - kept, out.end = end;
  at += 4;
  if (out.kept - at < length) return false;
  const uint8_t* const first = span % how.chain == 0 ? states.load(at, at + length) : at;
  if (!first) return false;
  words = {first, at + length, count, out.coded, &states};
  out.extra = BitReader{at + length, out.kept};
  return true;
}

// The values of chunk c from its symbols, and its raw blocks.
template <class T, bool DITHER>
inline bool close_chunk(const Spec& spec, int64_t c, const Squeeze& how, const int32_t* symbols,
                        Opened& from, T* out) {
  const int n = int(min_of<int64_t>(CHUNK, spec.n - c * CHUNK));
  if (how.levels[c] >= LEVELS) return false;
  return write_chunk(spec, n, out + c * CHUNK, [&](T* to) {
    dequantize_chunk<T, DITHER>(spec, c * CHUNK, n, how.levels[c], symbols, 0, to);
    from.kept = restore_raw(load_as<uint64_t>(how.raw + 8 * c), n, from.kept, from.end, to);
    return from.kept != nullptr;
  });
}

// The values of a span whose symbols are there.
template <class T, bool DITHER>
inline bool unsqueeze_span(const Spec& spec, int64_t span, const Squeeze& how, Opened& from, T* out) {
  const int64_t first = span * CHUNKS_PER_SPAN;
  const int64_t chunks = min_of<int64_t>(CHUNKS_PER_SPAN, ceil_div(spec.n, CHUNK) - first);
  alignas(64) int32_t symbols[CHUNK];
  for (int64_t k = 0; k < chunks; ++k) {
    const int n = int(min_of<int64_t>(CHUNK, spec.n - (first + k) * CHUNK));
    uint8_t* const coded = from.coded + k * CHUNK;
    for (int i = n; i % BLOCK != 0; ++i) coded[i] = 0;
    if (!expand_chunk(spec, (first + k) * CHUNK, n, coded, how.kind, from.extra, symbols) ||
        !close_chunk<T, DITHER>(spec, first + k, how, symbols, from, out))
      return false;
  }
  return true;
}

}  // namespace bounded
ACTZIP_END
