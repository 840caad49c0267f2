// Planned blocks to bytes: the codes of a chunk, one byte each, and the headers that say how many
// bits each block takes. Done in a pass of its own, when the codes have left the store buffer.
#pragma once

#include "bounded/bits.hpp"

#ifdef __BMI2__

ACTZIP_BEGIN
namespace bounded {

struct PlannedChunk {
  alignas(64) uint8_t codes[CHUNK + BLOCK];
  uint64_t nonzero[BLOCKS_PER_CHUNK];
  uint8_t headers[BLOCKS_PER_CHUNK];
};

// 64 codes. Eight are `width` bytes: every word is stored whole and the next one covers its rest.
ACTZIP_INLINE void pack_all(const uint8_t* codes, int width, uint8_t* out) {
  const uint64_t mask = Lanes<uint8_t>::ones * first_bits(width);
  for (int k = 0; k < 8; ++k)
    store_as(out + k * width, _pext_u64(load_as<uint64_t>(codes + 8 * k), mask));
}

// SIDE_BY_SIDE: the codes of a bitmap block are, without those of its zeros between them.
template <bool SIDE_BY_SIDE, class T>
inline int64_t pack_planned(const PlannedChunk& chunk, const T* x, uint8_t* out) {
  uint8_t* const begin = out;
  for (int b = 0; b < BLOCKS_PER_CHUNK; ++b) {
    const uint8_t header = chunk.headers[b];
    if (header == RAW) {
      std::memcpy(out, x + b * BLOCK, BLOCK * sizeof(T));
      out += BLOCK * sizeof(T);
      continue;
    }
    const int width = header & 31;
    const bool map = (header >> 5 & ~1) == BITMAP;
    const uint8_t* const codes = chunk.codes + b * BLOCK;
    store_as(out, chunk.nonzero[b]);
    out += map ? 8 : 0;
    if (SIDE_BY_SIDE || !map)
      pack_all(codes, width, out);
    else
      pack_lanes(codes, chunk.nonzero[b], width, out);
    out += map ? bytes_of(__builtin_popcountll(chunk.nonzero[b]) * width) : 8 * width;
  }
  return out - begin;
}

}  // namespace bounded
ACTZIP_END

#endif
