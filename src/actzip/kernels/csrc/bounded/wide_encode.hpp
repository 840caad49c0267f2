// A whole chunk to bytes with AVX-512, for the usual case: dithered, no prediction in two dimensions,
// and no code of more than 8 bits. Two passes: the first quantizes, chooses the modes and puts the
// codes of each block side by side as bytes; the second packs (pack.hpp). In between the bytes
// leave the store buffer, from which the overlapping stores of the first pass could not be read.
#pragma once

#include "bounded/pack.hpp"
#include "bounded/wide.hpp"

#ifdef ACTZIP_BOUNDED_WIDE

ACTZIP_BEGIN
namespace bounded {

struct WideChunk : PlannedChunk {
  __m512i most;  // |x / step| as bits
};

// The codes where `present`, as bytes side by side and with zeros after them.
ACTZIP_INLINE void put_codes(const __m512i* u, uint64_t present, uint8_t* to) {
  for (int k = 0; k < VECTORS; ++k, present >>= kLanes) {
    const __mmask16 here = __mmask16(present);
    const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_maskz_compress_epi32(here, u[k]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
    to += __builtin_popcount(here);
  }
  store_as(to, uint64_t{0});
}

// Zigzag differences to the symbol before, which for the first is the last of `before`.
ACTZIP_INLINE uint32_t residuals_wide(const WideSymbols& w, __m512i before, __m512i* u) {
  for (int k = 0; k < VECTORS; before = w.s[k++])
    u[k] = zigzag(_mm512_sub_epi32(w.s[k], _mm512_alignr_epi32(w.s[k], before, kLanes - 1)));
  return uint32_t(_mm512_reduce_or_epi32(or_of(u)));
}

// The choice of pack_block for 64 values; false when a code takes more than 8 bits. `before` is
// the last vector of the block before, and becomes that of this one.
template <class T>
ACTZIP_INLINE bool plan_block(WideSymbols& w, __m512i& before, int b, WideChunk& out) {
  __m512i u[VECTORS];
  const bool is_signed = any_negative(w);
  for (int k = 0; k < VECTORS; ++k) u[k] = is_signed ? zigzag(w.s[k]) : w.s[k];
  const uint32_t largest = _mm512_reduce_max_epu32(max_of_four(u));
  const int width = bit_width(largest), short_width = largest ? bit_width(largest - 1) : 0;
  const int count = __builtin_popcountll(w.nonzero), whole = BLOCK * int(sizeof(T));
  const int plain = 8 * width, bitmap = 8 + bytes_of(count * short_width);
  const int best = min_of(plain, bitmap);
  if (!w.fits || (width > 0 && best >= whole)) {
    out.headers[b] = RAW;
    before = _mm512_setzero_si512();
    return true;
  }
  const __m512i last = before;
  before = w.s[VECTORS - 1];
  out.nonzero[b] = w.nonzero;
  if (width > 0 && 4 * count >= 3 * BLOCK) {
    __m512i d[VECTORS];
    const int delta_width = bit_width(residuals_wide(w, last, d));
    if (8 * delta_width < best) {
      out.headers[b] = pack_header(DELTA, false, delta_width);
      put_codes(d, ~uint64_t{0}, out.codes + b * BLOCK);
      return delta_width <= 8;
    }
  }
  const bool dense = plain <= bitmap;
  const __m512i less = _mm512_set1_epi32(dense ? 0 : 1);
  for (int k = 0; k < VECTORS; ++k) u[k] = _mm512_sub_epi32(u[k], less);
  put_codes(u, dense ? ~uint64_t{0} : w.nonzero, out.codes + b * BLOCK);
  out.headers[b] = pack_header(dense ? PLAIN : BITMAP, is_signed && width > 0, dense ? width : short_width);
  return (dense ? width : short_width) <= 8;
}

template <class T, bool ONE>
inline bool plan_chunk(const Spec& spec, const T* x, int64_t first, int level, WideChunk& out) {
  Grid<float> g;
  if (ONE) fill_grid(spec, first, level, g);
  const Key key = stream_key(spec.seed, uint64_t(first / 32) >> 28);
  __m512i before = _mm512_setzero_si512(), most = before;
  for (int b = 0; b < BLOCKS_PER_CHUNK; ++b) {
    const int64_t start = first + b * BLOCK;
    if (!ONE) fill_grid(spec, start, level, g);
    WideSymbols w = quantize_wide<T, true, ONE>(x + b * BLOCK, g, key, start, most);
    if (!plan_block<T>(w, before, b, out)) return false;
  }
  out.most = most;
  return true;
}

// The largest |x / step| of a chunk of 16-bit values in one channel, or infinity for one that has
// no finite product: scaling keeps the order, so the largest |x| will do.
template <class T>
inline float wide_ratio(const Spec& spec, const T* x) {
  Grid<float> g;
  fill_grid(spec, 0, 0, g);
  __m512i most = _mm512_setzero_si512();
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  for (int i = 0; i < CHUNK; i += 32)
    most = _mm512_max_epu16(most, _mm512_and_si512(magnitude, _mm512_loadu_si512(x + i)));
  alignas(64) uint16_t each[32];
  _mm512_store_si512(each, most);
  uint16_t largest = 0;
  for (int i = 0; i < 32; ++i) largest = max_of(largest, each[i]);
  return widen(T{largest}) * g.inv[0];
}

// Encodes a whole chunk; -1 when this is not the usual case.
template <class T, bool ONE>
inline int64_t encode_wide(const Spec& spec, const T* x, int64_t first, uint8_t* headers,
                           uint8_t* out, int& level) {
  WideChunk chunk;
  level = 0;
  if constexpr (sizeof(T) == 2) {
    const float ratio = ONE ? wide_ratio(spec, x) : __builtin_inff();
    if (!(ratio < __builtin_inff())) return -1;
    level = level_of<T>(ratio);
  }
  if (!plan_chunk<T, ONE>(spec, x, first, level, chunk)) return -1;
  if (sizeof(T) > 2) {
    const float ratio = bit_cast<float>(_mm512_reduce_max_epu32(chunk.most));
    if (!(ratio < __builtin_inff())) return -1;
    level = level_of<T>(ratio);
    if (level > 0 && !plan_chunk<T, ONE>(spec, x, first, level, chunk)) return -1;
  }
  std::memcpy(headers, chunk.headers, BLOCKS_PER_CHUNK);
  return pack_planned<true>(chunk, x, out);
}

}  // namespace bounded
ACTZIP_END

#endif
