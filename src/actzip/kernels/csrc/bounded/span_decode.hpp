// The bytes of a span back to values. Every length is checked before it is used.
#pragma once

#include "bounded/span.hpp"

ACTZIP_BEGIN
namespace bounded {

// Symbols of a chunk from what the coder gave; false when extra bits run out.
inline ACTZIP_ONCE bool expand_chunk(const Spec& spec, int64_t first, int n, const uint8_t* coded,
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

// Where the values of a chunk come from and go to.
template <class T>
struct Piece {
  int64_t first;
  int n, level;
  uint8_t* coded;
  T* out;
};

#ifdef ACTZIP_BOUNDED_WIDE

// A whole chunk that was dithered and not predicted: a block's symbols become values in registers.
// Nobody is in a hurry for values that were rounded to the nearest.
template <class T, bool IS_SIGNED, bool ONE, bool STREAM>
inline bool restore_wide(const Spec& spec, const Piece<T>& piece, BitReader& extra) {
  Grid<float> g;
  if (ONE) fill_grid(spec, piece.first, piece.level, g);
  Noise noise(stream_key(spec.seed, uint64_t(piece.first / 32) >> 28), piece.first / 32);
  alignas(64) uint32_t u[BLOCK];
  for (int i = 0; i < CHUNK; i += BLOCK) {
    const uint8_t* const coded = piece.coded + i;
    __m512i code[VECTORS];
    for (int k = 0; k < VECTORS; ++k)
      code[k] = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(coded + kLanes * k)));
    if (_mm512_cmpge_epu8_mask(_mm512_loadu_si512(coded), _mm512_set1_epi8(DIRECT)) != 0) {
      if (!take_block(coded, BLOCK, extra, u)) return false;
      for (int k = 0; k < VECTORS; ++k) code[k] = _mm512_load_si512(u + kLanes * k);
    }
    if (!ONE) fill_grid(spec, piece.first + i, piece.level, g);
    F y[VECTORS];
    for (int h = 0; h < 2; ++h) {
      const Block v = noise.next();
      for (int k = 0; k < kVectors; ++k) {
        const int j = kVectors * h + k;
        y[j] = dequantize16<true>(IS_SIGNED ? unzigzag(code[j]) : code[j], grid_at<ONE>(g.step, j), v.v[k]);
      }
    }
    store_block<STREAM>(piece.out + i, y);
  }
  if (STREAM) end_stream();
  return true;
}

template <class T, bool IS_SIGNED>
inline bool restore_wide(const Spec& spec, const Piece<T>& piece, BitReader& extra) {
  const bool one = spec.channels == 1;
  if (streams(spec, piece.n, piece.out))
    return one ? restore_wide<T, IS_SIGNED, true, true>(spec, piece, extra)
               : restore_wide<T, IS_SIGNED, false, true>(spec, piece, extra);
  return one ? restore_wide<T, IS_SIGNED, true, false>(spec, piece, extra)
             : restore_wide<T, IS_SIGNED, false, false>(spec, piece, extra);
}

#endif

// The values of a chunk; those of raw blocks are not yet what they should be. False when extra bits
// run out.
template <class T, bool DITHER>
inline bool restore_chunk(const Spec& spec, const Piece<T>& piece, Kind kind, BitReader& extra) {
#ifdef ACTZIP_BOUNDED_WIDE
  if constexpr (DITHER && sizeof(Real<T>) == 4)
    if (piece.n == CHUNK && kind != DIFFERENCES)
      return kind == SIGNED ? restore_wide<T, true>(spec, piece, extra)
                            : restore_wide<T, false>(spec, piece, extra);
#endif
  alignas(64) int32_t symbols[CHUNK];
  for (int i = piece.n; i % BLOCK != 0; ++i) piece.coded[i] = 0;
  if (!expand_chunk(spec, piece.first, piece.n, piece.coded, kind, extra, symbols)) return false;
  return write_chunk(spec, piece.n, piece.out, [&](T* to) {
    dequantize_chunk<T, DITHER>(spec, piece.first, piece.n, piece.level, symbols, 0, to);
    return true;
  });
}

// The values of a span whose symbols are there.
template <class T, bool DITHER>
inline bool unsqueeze_span(const Spec& spec, int64_t span, const Squeeze& how, Opened& from, T* out) {
  const int64_t begin = span * CHUNKS_PER_SPAN;
  const int64_t end = min_of(begin + CHUNKS_PER_SPAN, ceil_div(spec.n, CHUNK));
  for (int64_t c = begin; c < end; ++c) {
    const int64_t first = c * CHUNK;
    const int n = int(min_of<int64_t>(CHUNK, spec.n - first)), level = how.levels[c];
    const Piece<T> piece{first, n, level, from.coded + (c - begin) * CHUNK, out + first};
    if (level >= LEVELS || !restore_chunk<T, DITHER>(spec, piece, how.kind, from.extra)) return false;
    from.kept = restore_raw(load_as<uint64_t>(how.raw + 8 * c), n, from.kept, from.end, piece.out);
    if (!from.kept) return false;
  }
  return true;
}

}  // namespace bounded
ACTZIP_END
