// One span of Bounded with the entropy stage: values to bytes and back.
//
//   uint32 length of the coded symbols | coded symbols | extra bits | the values of raw blocks
#pragma once

#include "bounded_rans.hpp"
#include "bounded_squeeze.hpp"

ACTZIP_BEGIN
namespace bounded {

// What a span is coded with, and where its side information goes.
struct Squeeze {
  const uint16_t* frequency;
  bool is_signed;
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

template <class T, bool DITHER>
inline void squeeze_span(const Spec& spec, const T* x, int64_t span, const Squeeze& how,
                         const entropy::EncodeTable& table, Squeezed& out) {
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
      block_codes(spec, start + done, symbols, b, here, how.is_signed, u);
      put_block(u, here, how.frequency, direct, out.symbols + done + b * BLOCK, extra);
    }
  }
  extra.finish();
  out.begin = encode_symbols(out.symbols, count, table, middle);
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
                         bool is_signed, BitReader& extra, int32_t* s) {
  alignas(64) uint32_t u[BLOCK];
  for (int b = 0; b * BLOCK < n; ++b) {
    const int here = min_of(BLOCK, n - b * BLOCK);
    if (!take_block(coded + b * BLOCK, here, extra, u)) return false;
    if (spec.width > 0)
      unpredict(spec, first, u, b * BLOCK, here, s);
    else if (is_signed)
      for (int i = 0; i < BLOCK; ++i) s[b * BLOCK + i] = int32_t(unzigzag(u[i]));
    else
      for (int i = 0; i < BLOCK; ++i) s[b * BLOCK + i] = int32_t(u[i]);
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

template <class T, bool DITHER>
inline bool unsqueeze_span(const Spec& spec, int64_t span, const Squeeze& how,
                           const entropy::DecodeTable& table, const uint8_t* at,
                           const uint8_t* end, T* out) {
  alignas(64) uint8_t coded[entropy::SPAN + BLOCK];
  alignas(64) int32_t symbols[CHUNK];
  const int64_t start = span * entropy::SPAN, count = min_of(entropy::SPAN, spec.n - start);
  const int64_t chunk = start / CHUNK, chunks = ceil_div(count, CHUNK);
  int64_t kept = 0;
  for (int64_t k = 0; k < chunks; ++k) {
    const int n = int(min_of<int64_t>(CHUNK, count - k * CHUNK));
    kept += raw_values(load_as<uint64_t>(how.raw + 8 * (chunk + k)), n) * int64_t(sizeof(T));
  }
  if (end - at < 4 || kept < 0 || end - at - 4 < kept) return false;
  const int64_t length = load_as<uint32_t>(at);
  const uint8_t* kept_at = end - kept;
  at += 4;
  if (kept_at - at < length) return false;
  if (!entropy::decode_span(at, at + length, count, table, coded)) return false;
  for (int64_t i = count; i < ceil_div(count, BLOCK) * BLOCK; ++i) coded[i] = 0;
  BitReader extra{at + length, kept_at};
  for (int64_t k = 0; k < chunks; ++k) {
    const int64_t first = start + k * CHUNK;
    const int n = int(min_of<int64_t>(CHUNK, count - k * CHUNK));
    const int level = how.levels[chunk + k];
    if (level >= LEVELS) return false;
    if (!expand_chunk(spec, first, n, coded + k * CHUNK, how.is_signed, extra, symbols)) return false;
    dequantize_chunk<T, DITHER>(spec, first, n, level, symbols, 0, out + first);
    kept_at = restore_raw(load_as<uint64_t>(how.raw + 8 * (chunk + k)), n, kept_at, end, out + first);
    if (kept_at == nullptr) return false;
  }
  return true;
}

}  // namespace bounded
ACTZIP_END
