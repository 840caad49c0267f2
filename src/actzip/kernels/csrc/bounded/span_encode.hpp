// The values of a span to bytes.
#pragma once

#include "bounded/rans.hpp"
#include "bounded/span.hpp"

ACTZIP_BEGIN
namespace bounded {

// Bytes of a span without its raw values; `begin` has them in `room`.
struct Squeezed {
  alignas(64) uint8_t symbols[entropy::SPAN + BLOCK];
  alignas(64) uint8_t room[4 + entropy::SPAN_ROOM + EXTRA_ROOM + 8];
  uint8_t* begin;
  int64_t bytes;      // -1: more extra bits than there is room for
  int64_t raw_bytes;
};

#ifdef ACTZIP_BOUNDED_BYTES

// Symbols of one block; false when this is not the usual case.
ACTZIP_INLINE bool put_bytes(const Integers& v, const Squeeze& how, Direct direct, uint8_t* to,
                             BitWriter& extra) {
  const bool is_signed = how.kind == SIGNED;
  if (!is_signed && any_negative(v)) return false;
  const Integers c = is_signed ? signed_codes(v) : v;
  if (is_signed && !fit_bytes(c)) return false;
  const ByteBlock codes = to_bytes(c);
  const uint32_t largest = uint32_t(largest_byte(codes)), least = v.nonzero == ~uint64_t{0} ? 1 : 0;
  if (largest == 255) return false;  // or more
  put_plain(codes, v.nonzero, to);
  if (direct.first <= least && largest + 1 < direct.first + direct.count) return true;
  alignas(64) uint32_t u[BLOCK];
  for (int i = 0; i < BLOCK; ++i) u[i] = to[i];
  put_block(u, BLOCK, how.frequency, direct, to, extra);
  return true;
}

// A whole chunk of dithered values in one channel, as bytes.hpp has it; false leaves all as
// it was.
template <class T>
inline bool squeeze_bytes(const Spec& spec, const T* x, int64_t first, const Squeeze& how, Direct direct,
                          uint8_t* symbols, BitWriter& extra, int& level) {
  float inv;
  if (!find_safe(spec, x, first, level, inv)) return false;
  Noise noise(stream_key(spec.seed, uint64_t(first / 32) >> 28), first / 32);
  const BitWriter before = extra;
  for (int i = 0; i < CHUNK; i += BLOCK)
    if (!put_bytes(quantize64(x + i, set1(inv), noise), how, direct, symbols + i, extra)) {
      extra = before;
      return false;
    }
  return true;
}

#endif

// What the entropy stage takes of a chunk of n symbols; the same code for every type of element.
ACTZIP_ONCE inline void put_chunk(const Spec& spec, int64_t first, const Symbols& symbols, int n,
                                  const Squeeze& how, Direct direct, uint8_t* to, BitWriter& extra) {
  alignas(64) uint32_t u[BLOCK];
  for (int b = 0; b * BLOCK < n; ++b) {
    const int here = min_of(BLOCK, n - b * BLOCK);
    block_codes(spec, first, symbols, b, here, how.kind, u);
    put_block(u, here, how.frequency, direct, to + b * BLOCK, extra);
  }
}

// The symbols of a chunk of n values, its level and its raw blocks.
template <class T, bool DITHER>
inline void squeeze_chunk(const Spec& spec, const T* x, int64_t first, int n, const Squeeze& how,
                          Direct direct, uint8_t* to, BitWriter& extra, int& level, uint64_t& raw) {
#ifdef ACTZIP_BOUNDED_BYTES
  raw = 0;
  if constexpr (DITHER && sizeof(Real<T>) == 4)
    if (n == CHUNK && spec.channels == 1 && how.kind != DIFFERENCES &&
        squeeze_bytes(spec, x, first, how, direct, to, extra, level))
      return;
#endif
  Symbols symbols;
  quantize_from<T, DITHER>(spec, first, x, n, symbols);
  level = symbols.level;
  raw = symbols.raw;
  put_chunk(spec, first, symbols, n, how, direct, to, extra);
}

template <class T, bool DITHER>
ACTZIP_ONCE void squeeze_span(const Spec& spec, const T* x, int64_t span, const Squeeze& how,
                         const entropy::EncodeTable& table, entropy::States& states,
                         Squeezed& out) {
  const Direct direct = direct_codes(how.frequency);
  uint8_t* const middle = out.room + 4 + entropy::SPAN_ROOM;
  BitWriter extra{middle, middle + EXTRA_ROOM};
  const int64_t start = span * entropy::SPAN, count = min_of(entropy::SPAN, spec.n - start);
  out.raw_bytes = 0;
  for (int64_t done = 0; done < count; done += CHUNK) {
    const int n = int(min_of<int64_t>(CHUNK, count - done));
    const int64_t c = (start + done) / CHUNK;
    int level;
    uint64_t raw;
    squeeze_chunk<T, DITHER>(spec, x + start + done, start + done, n, how, direct, out.symbols + done,
                             extra, level, raw);
    how.levels[c] = uint8_t(level);
    store_as(how.raw + 8 * c, raw);
    out.raw_bytes += raw_values(raw, n) * int64_t(sizeof(T));
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

}  // namespace bounded
ACTZIP_END
