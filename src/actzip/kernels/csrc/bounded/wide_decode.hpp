// A whole chunk back to values with AVX-512, for the usual case: dithered, no block of differences,
// and no code of more than 8 bits. Two passes, for the reason given in wide_encode.hpp.
#pragma once

#include "bounded/bits.hpp"
#include "bounded/wide.hpp"

ACTZIP_BEGIN
namespace bounded {

// The bytes of a chunk still to be read, and where readable memory ends.
struct Source {
  const uint8_t *at, *end, *readable;
};

// Reading is in words of 8 bytes from any block's begin on: this much past the chunk's end.
constexpr int64_t WIDE_SLACK = 8 + BLOCK + 8;

}  // namespace bounded
ACTZIP_END

#ifdef ACTZIP_BOUNDED_WIDE
#define ACTZIP_BOUNDED_DECODE

ACTZIP_BEGIN
namespace bounded {

struct WideCodes {
  alignas(64) uint8_t codes[CHUNK + BLOCK];
  uint64_t present[BLOCKS_PER_CHUNK];
};

inline bool is_usual(const uint8_t* headers) {
  bool odd = false;
  for (int b = 0; b < BLOCKS_PER_CHUNK; ++b) {
    const uint8_t h = headers[b];
    odd |= (h != RAW) & ((h >= DELTA * 32) | ((h & 31) > 8));
  }
  return !odd;
}

// Codes as bytes, side by side; raw blocks are copied to `out` at once.
template <class T>
inline bool unpack_wide(const uint8_t* headers, Source from, T* out, WideCodes& to) {
  for (int b = 0; b < BLOCKS_PER_CHUNK; ++b) {
    if (from.at > from.end) return false;
    if (headers[b] == RAW) {
      if (from.end - from.at < int64_t(BLOCK * sizeof(T))) return false;
      std::memcpy(out + b * BLOCK, from.at, BLOCK * sizeof(T));
      from.at += BLOCK * sizeof(T);
      continue;
    }
    const int width = headers[b] & 31;
    const bool map = headers[b] >= BITMAP * 32;
    const uint64_t present = load_as<uint64_t>(from.at) | (map ? 0 : ~uint64_t{0});
    from.at += map ? 8 : 0;
    to.present[b] = present;
    const uint64_t mask = Lanes<uint8_t>::ones * first_bits(width);
    for (int k = 0; k < 8; ++k)
      store_as(to.codes + b * BLOCK + 8 * k, _pdep_u64(load_as<uint64_t>(from.at + k * width), mask));
    from.at += bytes_of(__builtin_popcountll(present) * width);
  }
  return from.at <= from.end;
}

// The quantized integers of 16 codes as a bitmap block has them (bytes.hpp).
template <bool SIGNED> ACTZIP_INLINE __m512i integers_of(__m512i c) {
  if (!SIGNED) return c;
  const __m512i half = _mm512_srli_epi32(c, 1), even = _mm512_set1_epi32(1);
  return _mm512_mask_xor_epi32(half, _mm512_testn_epi32_mask(c, even), half, _mm512_set1_epi32(-1));
}

// 64 dithered values from codes side by side: those of a bitmap, or one for each.
template <class T, bool MAP, bool SIGNED, bool ONE>
ACTZIP_INLINE void dequantize_dithered(const uint8_t* codes, uint64_t present, const Grid<float>& g,
                                       Noise& noise, T* out) {
  for (int h = 0; h < 2; ++h) {
    const Block v = noise.next();
    Block y;
    for (int k = 0; k < kVectors; ++k, present >>= kLanes) {
      __mmask16 here = __mmask16(present);
      __m512i c = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
      codes += MAP ? __builtin_popcount(here) : kLanes;
      if (MAP) {
        c = _mm512_maskz_expand_epi32(here, c);
      } else {
        here = _mm512_test_epi32_mask(c, c);
        c = _mm512_sub_epi32(c, _mm512_set1_epi32(1));
      }
      const F q = _mm512_cvtepi32_ps(integers_of<SIGNED>(c));
      y.v[k] = _mm512_maskz_mul_ps(here, vsub(q, v.v[k]), grid_at<ONE>(g.step, kVectors * h + k));
    }
    store32(out + 32 * h, y);
  }
}

template <class T, bool ONE>
ACTZIP_INLINE void dequantize_dithered(uint8_t header, const uint8_t* codes, uint64_t present,
                                       const Grid<float>& g, Noise& noise, T* out) {
  switch (header >> 5) {
    case PLAIN: return dequantize_dithered<T, false, false, ONE>(codes, present, g, noise, out);
    case PLAIN + 1: return dequantize_dithered<T, false, true, ONE>(codes, present, g, noise, out);
    case BITMAP: return dequantize_dithered<T, true, false, ONE>(codes, present, g, noise, out);
    default: return dequantize_dithered<T, true, true, ONE>(codes, present, g, noise, out);
  }
}

// dequantize_chunk of a whole chunk.
template <class T, bool DITHER, bool ONE>
inline void dequantize_wide(const Spec& spec, int64_t first, int level, const int32_t* symbols,
                            uint64_t skip, T* out) {
  Grid<float> g;
  if (ONE) fill_grid(spec, first, level, g);
  const Key key = stream_key(spec.seed, uint64_t(first / 32) >> 28);
  for (int b = 0; b < BLOCKS_PER_CHUNK; ++b) {
    if (skip >> b & 1) continue;
    const int64_t start = first + b * BLOCK;
    if (!ONE) fill_grid(spec, start, level, g);
    const WideDither<DITHER> v(key, start);
    F y[VECTORS];
    for (int k = 0; k < VECTORS; ++k)
      y[k] = dequantize16<DITHER>(_mm512_loadu_si512(symbols + b * BLOCK + k * kLanes),
                                  grid_at<ONE>(g.step, k), v[k]);
    store_block(out + b * BLOCK, y);
  }
}

// Decodes a whole chunk whose headers are usual.
template <class T, bool ONE>
inline bool decode_wide(const Spec& spec, int64_t first, const uint8_t* headers, int level,
                           Source from, T* out) {
  WideCodes to;
  if (!unpack_wide(headers, from, out, to)) return false;
  Grid<float> g;
  if (ONE) fill_grid(spec, first, level, g);
  Noise noise(stream_key(spec.seed, uint64_t(first / 32) >> 28), first / 32);
  for (int b = 0; b < BLOCKS_PER_CHUNK; ++b) {
    if (headers[b] == RAW) {
      noise.skip(2);
      continue;
    }
    if (!ONE) fill_grid(spec, first + b * BLOCK, level, g);
    const uint8_t* codes = to.codes + b * BLOCK;
    dequantize_dithered<T, ONE>(headers[b], codes, to.present[b], g, noise, out + b * BLOCK);
  }
  return true;
}

}  // namespace bounded
ACTZIP_END

#endif
