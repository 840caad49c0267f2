// The bytes of one chunk back to values. Every length is checked before it is used: damaged bytes
// give kDamaged or wrong values.
#pragma once

#include "bounded/predict.hpp"
#include "bounded/avx2_decode.hpp"

ACTZIP_BEGIN
namespace bounded {

// Reads n symbols of one block; advances `from`, never past its end.
inline bool unpack_block(const Spec& spec, int64_t first, uint8_t header, Source& from,
                         int64_t begin, int n, int32_t* chunk) {
  alignas(64) uint32_t u[BLOCK];
  uint32_t* const symbols = reinterpret_cast<uint32_t*>(chunk + begin);
  uint8_t padded[BLOCK * 4 + 8 + 2 * PAD];
  Header h;
  if (!unpack_header(header, h)) return false;
  uint64_t present = first_bits(n);
  const int map = h.mode == BITMAP ? bytes_of(n) : 0;
  if (from.end - from.at < map) return false;
  if (map > 0) {
    uint64_t nonzero = 0;
    std::memcpy(&nonzero, from.at, size_t(map));
    present &= nonzero;
    from.at += map;
  }
  const int count = __builtin_popcountll(present);
  const int bytes = bytes_of(count * h.width);
  if (from.end - from.at < bytes) return false;
  const uint8_t* source = from.at;
  if (from.readable - from.at < bytes + PAD) {
    std::memset(padded, 0, sizeof padded);
    copy(padded, from.at, bytes);
    source = padded;
  }
  from.at += bytes;
  if (h.mode == DELTA) {
    unpack(source, present, h.width, 0, u);
    unpredict(spec, first, u, begin, n, chunk);
    for (int i = n; i < BLOCK; ++i) symbols[i] = 0;
    return true;
  }
  unpack(source, present, h.width, h.mode == BITMAP ? 1 : 0, symbols);
  if (h.is_signed)
    for (int i = 0; i < BLOCK; ++i) symbols[i] = unzigzag(symbols[i]);
  return true;
}

// Symbols of all blocks but the raw ones, which are copied to `out` at once.
template <class T>
inline int64_t unpack_chunk(const Spec& spec, int64_t first, int n, const uint8_t* headers,
                            Source from, T* out, int32_t* symbols) {
  for (int b = 0; b * BLOCK < n; ++b) {
    const int count = min_of(BLOCK, n - b * BLOCK);
    if (headers[b] != RAW) {
      if (!unpack_block(spec, first, headers[b], from, b * BLOCK, count, symbols)) return kDamaged;
      continue;
    }
    const int64_t whole = count * int64_t(sizeof(T));
    if (from.end - from.at < whole) return kDamaged;
    std::memcpy(out + b * BLOCK, from.at, size_t(whole));
    std::memset(symbols + b * BLOCK, 0, BLOCK * sizeof(int32_t));
    from.at += whole;
  }
  return kOk;
}

// Values of a chunk from its symbols; the blocks of `skip` are left alone.
template <class T, bool DITHER>
inline void dequantize_chunk(const Spec& spec, int64_t first, int n, int level,
                             const int32_t* symbols, uint64_t skip, T* out) {
#ifdef ACTZIP_BOUNDED_WIDE
  if constexpr (sizeof(Real<T>) == 4)
    if (n == CHUNK)
      return spec.channels == 1
                 ? dequantize_wide<T, DITHER, DITHER>(spec, first, level, symbols, skip, out)
                 : dequantize_wide<T, DITHER, false>(spec, first, level, symbols, skip, out);
#endif
  Grid<Real<T>> g;
  alignas(64) float v[BLOCK];
  alignas(64) T last[BLOCK];
  if (!DITHER) fill_dither(spec, first, v);
  for (int b = 0; b * BLOCK < n; ++b) {
    if (skip >> b & 1) continue;
    const int count = min_of(BLOCK, n - b * BLOCK);
    fill_grid(spec, first + b * BLOCK, level, g);
    if (DITHER) fill_dither(spec, first + b * BLOCK, v);
    T* const to = out + b * BLOCK;
    dequantize<T, DITHER>(symbols + b * BLOCK, g, v, count == BLOCK ? to : last);
    if (count < BLOCK) std::memcpy(to, last, size_t(count) * sizeof(T));
  }
}

// Whether a chunk of n values for `out` goes past the caches.
template <class T>
inline bool streams(const Spec& spec, int n, const T* out) {
  return n == CHUNK && beyond_caches(spec.n * int64_t(sizeof(T))) && can_stream(out);
}

// f(where to) writes a chunk of n values for `out`, or says no. Of a large tensor it goes past the
// caches, from a buffer: a choice between two kinds of store for each block cost more than the copy.
template <class T, class G>
inline bool write_chunk(const Spec& spec, int n, T* out, G&& f) {
  if (!streams(spec, n, out)) return f(out);
  alignas(64) T buffer[CHUNK];
  if (!f(buffer)) return false;
  stream_copy(out, buffer, sizeof buffer);
  return true;
}

// Two passes over the chunk: values are made from symbols that have long left the store buffer.
template <class T, bool DITHER>
inline int64_t decode_chunk(const Spec& spec, int64_t c, const uint8_t* headers, int level,
                            Source from, T* out) {
  const int64_t first = c * CHUNK;
  const int n = int(min_of<int64_t>(CHUNK, spec.n - first));
  alignas(64) int32_t symbols[CHUNK];
  headers += c * BLOCKS_PER_CHUNK;
#ifdef ACTZIP_BOUNDED_DECODE
  if constexpr (DITHER && sizeof(Real<T>) == 4)
    if (n == CHUNK && from.readable - from.end >= WIDE_SLACK && is_usual(headers))
      return write_chunk(spec, n, out + first, [&](T* to) {
        return spec.channels == 1 ? decode_wide<T, true>(spec, first, headers, level, from, to)
                                  : decode_wide<T, false>(spec, first, headers, level, from, to);
      }) ? kOk : kDamaged;
#endif
  const int64_t status = unpack_chunk(spec, first, n, headers, from, out + first, symbols);
  if (status != kOk) return status;
  uint64_t raw = 0;
  for (int b = 0; b * BLOCK < n; ++b) raw |= uint64_t{headers[b] == RAW} << b;
  dequantize_chunk<T, DITHER>(spec, first, n, level, symbols, raw, out + first);
  return kOk;
}

}  // namespace bounded
ACTZIP_END
