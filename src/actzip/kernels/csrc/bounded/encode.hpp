// One chunk of up to 4096 values to bytes: quantize, choose a mode per block, pack.
#pragma once

#include "bounded/predict.hpp"
#include "bounded/bytes.hpp"

ACTZIP_BEGIN
namespace bounded {

// Room for the bytes of any chunk, and for what packing writes past its end.
template <class T> constexpr int64_t chunk_room() { return CHUNK * int64_t(sizeof(T)) + 8 * PAD; }

// The values of a chunk as Real<T>, padded with zeros to whole blocks.
template <class T>
struct Values {
  alignas(64) Real<T> x[CHUNK];

  const Real<T>* load(const T* from, int64_t n) {
    if constexpr (sizeof(T) == sizeof(Real<T>))
      if (n == CHUNK) return reinterpret_cast<const Real<T>*>(from);
    for (int64_t i = 0; i < n; ++i) x[i] = widen(from[i]);
    for (int64_t i = n; i < ceil_div(n, BLOCK) * BLOCK; ++i) x[i] = 0;
    return x;
  }
};

// Symbols of a chunk, and which of its blocks must be stored raw.
struct Symbols {
  alignas(64) int32_t s[CHUNK];
  uint64_t raw;
  int level;
};

// The level that the largest |x / step| at level 0 asks for.
template <class T>
inline int chunk_level(const Spec& spec, int64_t first, const Real<T>* x, int blocks) {
  Grid<Real<T>> g;
  IntOf<Real<T>> most = 0;
  for (int b = 0; b < blocks; ++b) {
    fill_grid(spec, first + b * BLOCK, 0, g);
    most = largest_ratio(x + b * BLOCK, g, most);
  }
  return level_of<T>(bit_cast<Real<T>>(most));
}

#ifdef ACTZIP_BOUNDED_WIDE
template <class T, bool DITHER, bool ONE, class X>
inline int32_t quantize_blocks_wide(const Spec& spec, int64_t first, const X* x, int blocks,
                                    Symbols& out) {
  Grid<float> g;
  const Key key = stream_key(spec.seed, uint64_t(first / 32) >> 28);
  __m512i most = _mm512_setzero_si512();
  uint64_t raw = 0;
  for (int b = 0; b < blocks; ++b) {
    const int64_t start = first + b * BLOCK;
    if (!ONE || b == 0) fill_grid(spec, start, out.level, g);
    const WideSymbols w = quantize_wide<T, DITHER, ONE>(x + b * BLOCK, g, key, start, most);
    raw |= uint64_t{!w.fits} << b;
    const __mmask16 keep = w.fits ? 0xffff : 0;
    for (int k = 0; k < VECTORS; ++k)
      _mm512_store_si512(out.s + b * BLOCK + k * kLanes, _mm512_maskz_mov_epi32(keep, w.s[k]));
  }
  out.raw = raw;
  return int32_t(_mm512_reduce_max_epu32(most));
}
#endif

// Quantizes on the grid of out.level; returns the largest |x / step| as bits.
template <class T, bool DITHER>
inline IntOf<Real<T>> quantize_blocks(const Spec& spec, int64_t first, const Real<T>* x, int blocks,
                                      Symbols& out) {
#ifdef ACTZIP_BOUNDED_WIDE
  if constexpr (sizeof(Real<T>) == 4)
    return spec.channels == 1 ? quantize_blocks_wide<T, DITHER, true>(spec, first, x, blocks, out)
                              : quantize_blocks_wide<T, DITHER, false>(spec, first, x, blocks, out);
#endif
  Grid<Real<T>> g;
  Range<Real<T>> range;
  alignas(64) float v[BLOCK];
  out.raw = 0;
  if (!DITHER) fill_dither(spec, first, v);
  for (int b = 0; b < blocks; ++b) {
    fill_grid(spec, first + b * BLOCK, out.level, g);
    if (DITHER) fill_dither(spec, first + b * BLOCK, v);
    int32_t* const s = out.s + b * BLOCK;
    if (!quantize<T, DITHER>(x + b * BLOCK, g, v, s, range)) {
      out.raw |= uint64_t{1} << b;
      std::memset(s, 0, BLOCK * sizeof *s);  // what prediction sees of a raw block
    }
  }
  return range.largest();
}

// 32- and 64-bit floats nearly always have level 0: that is tried first, which saves a pass.
template <class T, bool DITHER>
inline void quantize_chunk(const Spec& spec, int64_t first, const Real<T>* x, int n, Symbols& out) {
  using R = Real<T>;
  const int blocks = int(ceil_div(n, BLOCK));
  const bool guess = sizeof(T) > 2;
  out.level = guess ? 0 : chunk_level<T>(spec, first, x, blocks);
  const IntOf<R> most = quantize_blocks<T, DITHER>(spec, first, x, blocks, out);
  if (!guess) return;
  const bool finite = most < magnitude_bits(R(__builtin_inf()));
  const int level = finite ? level_of<T>(bit_cast<R>(most)) : chunk_level<T>(spec, first, x, blocks);
  if (level == 0) return;
  out.level = level;
  quantize_blocks<T, DITHER>(spec, first, x, blocks, out);
}

// Symbols of the n values of a chunk that starts at x.
template <class T, bool DITHER>
ACTZIP_ONCE void quantize_from(const Spec& spec, int64_t first, const T* x, int n, Symbols& out) {
#ifdef ACTZIP_BOUNDED_WIDE
  if constexpr (sizeof(T) == 2)
    if (n == CHUNK && spec.channels == 1) {
      const float ratio = wide_ratio(spec, x);
      if (ratio < __builtin_inff()) {
        out.level = level_of<T>(ratio);
        quantize_blocks_wide<T, DITHER, true>(spec, first, x, BLOCKS_PER_CHUNK, out);
        return;
      }
    }
#endif
  Values<T> values;
  quantize_chunk<T, DITHER>(spec, first, values.load(x, n), n, out);
}

struct Choice {
  uint8_t header;
  int bytes;
};

// Codes u of a block: zigzag when any symbol is negative, else the symbols; minus `less`, which
// for a bitmap's absent codes wraps around and is never looked at.
inline void codes_of(const int32_t* s, bool is_signed, uint32_t less, uint32_t* u) {
  if (is_signed)
    for (int i = 0; i < BLOCK; ++i) u[i] = zigzag(uint32_t(s[i])) - less;
  else
    for (int i = 0; i < BLOCK; ++i) u[i] = uint32_t(s[i]) - less;
}

// Writes one block, or says RAW when neither plain nor bitmap is shorter than the `whole` values;
// returns its header and length. Ties go to plain, then bitmap, then delta.
inline Choice pack_block(const Spec& spec, int64_t first, const Symbols& symbols, int b, int n,
                         int whole, uint8_t* out) {
  alignas(64) uint32_t u[BLOCK];
  const int32_t* const s = symbols.s + b * BLOCK;
  int32_t lo = 0, hi = 0;
  for (int i = 0; i < BLOCK; ++i) lo = min_of(lo, s[i]), hi = max_of(hi, s[i]);
  const uint32_t below = uint32_t(-lo), above = uint32_t(hi);
  const bool is_signed = below > 0;
  const uint32_t largest = is_signed ? max_of(2 * above, 2 * below - 1) : above;
  const int width = bit_width(largest);
  if (width == 0) return {pack_header(PLAIN, false, 0), 0};
  const uint64_t nonzero = nonzero_bits(s), all = first_bits(n);
  const int count = __builtin_popcountll(nonzero), short_width = bit_width(largest - 1);
  const int plain = bytes_of(n * width), bitmap = bytes_of(n) + bytes_of(count * short_width);
  if (min_of(plain, bitmap) >= whole) return {RAW, whole};
  // with a quarter of zeros or more the bitmap wins: do not even look
  if (4 * count >= 3 * n) {
    const int delta_width = bit_width(residuals(spec, first, symbols.s, b * BLOCK, n, u));
    const int delta = bytes_of(n * delta_width);
    if (delta < min_of(plain, bitmap)) {
      pack(u, all, delta_width, out);
      return {pack_header(DELTA, false, delta_width), delta};
    }
  }
  codes_of(s, is_signed, plain <= bitmap ? 0 : 1, u);
  if (plain <= bitmap) {
    pack(u, all, width, out);
    return {pack_header(PLAIN, is_signed, width), plain};
  }
  store_as(out, nonzero);
  pack(u, nonzero, short_width, out + bytes_of(n));
  return {pack_header(BITMAP, is_signed, short_width), bitmap};
}

// Packs the n values of a chunk that starts at x; returns the length. Blocks that turn out longer
// than raw get symbols of zero, which is what prediction sees of a raw block.
template <class T>
inline int64_t pack_chunk(const Spec& spec, const T* x, int64_t first, int n, Symbols& symbols,
                          uint8_t* headers, uint8_t* out) {
  uint8_t* const begin = out;
  for (int b = 0; b * BLOCK < n; ++b) {
    const int count = min_of(BLOCK, n - b * BLOCK);
    const int whole = count * int(sizeof(T));
    Choice choice{RAW, whole};
    if (!(symbols.raw >> b & 1))
      choice = pack_block(spec, first, symbols, b, count, whole, out);
    if (choice.header == RAW) {
      std::memcpy(out, x + b * BLOCK, size_t(whole));
      std::memset(symbols.s + b * BLOCK, 0, BLOCK * sizeof(int32_t));
    }
    headers[b] = choice.header;
    out += choice.bytes;
  }
  return out - begin;
}

#ifdef ACTZIP_BOUNDED_BYTES
// A whole dithered chunk with vectors, the usual way when it is usual; -1 when it is not for these.
template <class T>
inline int64_t encode_whole(const Spec& spec, const T* x, int64_t first, uint8_t* headers,
                            uint8_t* out, int& level) {
  int64_t size = -1;
  if (spec.channels == 1) size = encode_bytes(spec, x, first, headers, out, level);
#ifdef ACTZIP_BOUNDED_WIDE
  if (size < 0)
    size = spec.channels == 1 ? encode_wide<T, true>(spec, x, first, headers, out, level)
                              : encode_wide<T, false>(spec, x, first, headers, out, level);
#endif
  return size;
}
#endif

// Encodes chunk `c` of x to `out` (chunk_room bytes); returns the length.
template <class T, bool DITHER>
ACTZIP_ONCE int64_t encode_chunk(const Spec& spec, const T* x, int64_t c, uint8_t* headers,
                            uint8_t* out, int& level) {
  const int64_t first = c * CHUNK;
  const int n = int(min_of<int64_t>(CHUNK, spec.n - first));
  headers += c * BLOCKS_PER_CHUNK;
#ifdef ACTZIP_BOUNDED_BYTES
  if constexpr (DITHER && sizeof(Real<T>) == 4)
    if (n == CHUNK && spec.width == 0) {
      const int64_t size = encode_whole<T>(spec, x + first, first, headers, out, level);
      if (size >= 0) return size;
    }
#endif
  Symbols symbols;
  quantize_from<T, DITHER>(spec, first, x + first, n, symbols);
  level = symbols.level;
  return pack_chunk(spec, x + first, first, n, symbols, headers, out);
}

}  // namespace bounded
ACTZIP_END
