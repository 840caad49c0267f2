// The byte layout of Bounded: what a block header means and how long a block is.
//
//   table   one uint64 per chunk of 4096 values: offset of its data (low 56 bits), level (high 8)
//   headers one byte per block of 64 values
//   data    the blocks of chunk 0, of chunk 1, ...; each block starts at a byte
//
// Symbols: s = 0 is an exact zero. With dither a non-zero value with the quantized integer q has
// s = q + 1 for q >= 0 and s = q below, so that no other value decodes to zero; without, s = q.
#pragma once

#include "common/core.hpp"

ACTZIP_BEGIN
namespace bounded {

constexpr int BLOCK = 64;
constexpr int CHUNK = 4096;
constexpr int BLOCKS_PER_CHUNK = CHUNK / BLOCK;
constexpr uint64_t OFFSET_MASK = (uint64_t{1} << 56) - 1;

enum Mode : uint8_t { PLAIN = 0, BITMAP = 2, DELTA = 4 };  // + 1: signed (zigzag) codes
constexpr uint8_t RAW = 255;
constexpr int MAX_WIDTH = 30;

// The step shrinks where rounding (of the arithmetic, and of the result to 16 bits) would eat
// into the bound: scale of level k, chosen per chunk from max |x| / (2 error).
constexpr int LEVELS = 7;
constexpr double SCALE[LEVELS] = {1 - 1.0 / 1024, 1 - 1.0 / 64, 1 - 1.0 / 16, 0.875, 0.75,
                                  0.625,          0.5};

template <bool B> struct BoolTag { static constexpr bool value = B; };

struct Header {
  int width;
  bool is_signed;
  Mode mode;
};

inline uint8_t pack_header(Mode mode, bool is_signed, int width) {
  return static_cast<uint8_t>((mode + (is_signed ? 1 : 0)) * 32 + width);
}

// False for a byte that no encoder writes (RAW is handled before).
inline bool unpack_header(uint8_t byte, Header& h) {
  const int combo = byte >> 5;
  h.width = byte & 31;
  h.is_signed = combo == DELTA || (combo & 1) != 0;
  h.mode = static_cast<Mode>(combo & ~1);
  return combo <= DELTA && h.width <= MAX_WIDTH;
}

// memcpy that may be given nothing, and then null.
inline void copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, size_t(bytes));
}

// Whether chunks of these sizes (in the low 56 bits) lie in the workspace, those that have a place
// there, and all together fill no more than the payload.
template <class I>
inline bool chunks_fit(const I* sizes, const int64_t* place, int64_t chunks, int64_t room, int64_t bytes) {
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t size = int64_t(uint64_t(sizes[c]) & OFFSET_MASK);
    if (size > bytes || (place[c] >= 0 && place[c] > room - size)) return false;
    bytes -= size;
  }
  return true;
}

inline int bytes_of(int64_t bits) { return static_cast<int>((bits + 7) / 8); }

inline int bit_width(uint32_t v) { return v == 0 ? 0 : 32 - __builtin_clz(v); }

}  // namespace bounded
ACTZIP_END
