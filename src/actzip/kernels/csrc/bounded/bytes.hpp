// A whole chunk of dithered codes of at most 8 bits, in one channel: what activations with an error
// of about a per cent are. -1 for any other chunk, which is left to slower ways.
//
// The code c of a value that is not zero is what a bitmap block stores, its symbol less one: the
// quantized integer q, or zigzag(q) ^ 1 in a block with negative ones. Plain blocks store c + 1,
// and 0 for zeros.
//
// The bound holds for every such value and is not checked again. Let r be |x| / step and u 2^-24.
// Arithmetic between x and what comes back adds at most (5 r + 4) u steps to half a step: two
// roundings of x / step, one of the dither's sum, two of the way back. Rounding the result to bf16
// adds (r + 1/2) 2^-9 steps, to half precision 2^-12. The bound is half a step over SCALE, and
// level_of sees to it that SCALE leaves (r + 1/2) roundoff steps: 8 u of these for float32, twice
// the rounding for the 16-bit types. That fails for results that overflow or are so small that they
// round otherwise, and where not even the last level leaves so much: is_safe tells.
#pragma once

#include "bounded/bytes_avx2.hpp"
#include "bounded/bytes_avx512.hpp"

#ifdef ACTZIP_BOUNDED_BYTES

ACTZIP_BEGIN
namespace bounded {

// Whether the argument above holds for all values of up to `ratio` steps of level 0.
template <class T> inline bool is_safe(float eb, float ratio, int level) {
  const bool half = sizeof(T) == 2 && Limits<T>::roundoff < 0x1p-8;
  // What is coded comes back as 2^-17 steps or more: for half precision far above its unit.
  const double most = half ? 65000.0 : 0x1p126, least = half ? 0x1p-6 : 0x1p-90;
  return eb >= least && (double(ratio) + 1) * 2 * eb < most &&
         (double(ratio) + 0.5) * 2 * Limits<T>::roundoff <= 1 - SCALE[level];
}

// Header and codes of one block; false when a code takes more than 8 bits. The same choice as in
// pack_block; raw is never the shortest here.
ACTZIP_INLINE bool plan_bytes(const Integers& v, const Before& before, int b, PlannedChunk& out) {
  const bool is_signed = any_negative(v);
  const Integers c = is_signed ? signed_codes(v) : v;
  if (is_signed && !fit_bytes(c)) return false;
  const ByteBlock codes = to_bytes(c);
  const int largest = largest_byte(codes), count = __builtin_popcountll(v.nonzero);
  if (largest == 255) return false;  // or more
  const int short_width = bit_width(uint32_t(largest));
  const int width = count ? bit_width(uint32_t(largest + 1)) : 0;
  const int plain = 8 * width, bitmap = 8 + bytes_of(count * short_width);
  uint8_t* const to = out.codes + b * BLOCK;
  out.nonzero[b] = v.nonzero;
  if (4 * count >= 3 * BLOCK) {
    const int delta_width = put_differences(v, before, to);
    if (8 * delta_width < min_of(plain, bitmap)) {
      out.headers[b] = pack_header(DELTA, false, delta_width);
      return true;
    }
  }
  const bool dense = plain <= bitmap;
  out.headers[b] = pack_header(dense ? PLAIN : BITMAP, is_signed, dense ? width : short_width);
  dense ? put_plain(codes, v.nonzero, to) : put_bitmap(c, codes, to);
  return true;
}

template <class T>
inline bool plan_chunk_bytes(const Spec& spec, const T* x, int64_t first, float inv, PlannedChunk& out) {
  Noise noise(stream_key(spec.seed, uint64_t(first / 32) >> 28), first / 32);
  Before before{};
  for (int b = 0; b < BLOCKS_PER_CHUNK; ++b) {
    const Integers v = quantize64(x + b * BLOCK, set1(inv), noise);
    if (!plan_bytes(v, before, b, out)) return false;
    before = Before(v);
  }
  return true;
}

// The grid of a whole chunk if it is safe for all codes of up to 8 bits: its level, and 1 / step.
template <class T>
inline bool find_safe(const Spec& spec, const T* x, int64_t first, int& level, float& inv) {
  Grid<float> g;
  float ratio = 255;  // of a code of 8 bits, at most
  level = 0;
  if constexpr (sizeof(T) == 2) {
    ratio = wide_ratio(spec, x);
    if (!(ratio < __builtin_inff())) return false;
    level = level_of<T>(ratio);
  }
  fill_grid(spec, first, level, g);
  inv = g.inv[0];
  return is_safe<T>(g.eb[0], ratio, level);
}

// Encodes a whole chunk; -1 when this is not the usual case.
template <class T>
inline int64_t encode_bytes(const Spec& spec, const T* x, int64_t first, uint8_t* headers,
                            uint8_t* out, int& level) {
  float inv;
  PlannedChunk chunk;
  if (!find_safe(spec, x, first, level, inv) || !plan_chunk_bytes(spec, x, first, inv, chunk)) return -1;
  std::memcpy(headers, chunk.headers, BLOCKS_PER_CHUNK);
  return pack_planned<kSideBySide>(chunk, x, out);
}

}  // namespace bounded
ACTZIP_END

#endif
