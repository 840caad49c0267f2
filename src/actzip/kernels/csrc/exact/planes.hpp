// Bit planes: the codes of 32 elements as one word per bit; see reference/planes.py.
#pragma once

#include "common/simd.hpp"

ACTZIP_BEGIN

inline int64_t planes_size(int64_t n, int bits) { return (n / 32 * 4 + (n % 32 + 7) / 8) * bits; }

ACTZIP_INLINE uint32_t first_bits(int64_t m) { return m >= 32 ? 0xffffffffu : (1u << m) - 1; }

template <int Bits> ACTZIP_INLINE void store_whole(const Bytes& codes, uint32_t keep, uint8_t* out) {
#pragma GCC unroll 8
  for (int j = 0; j < Bits; ++j) store_as<uint32_t>(out + 4 * j, plane_where(keep, codes, j));
}

template <int Bits> ACTZIP_INLINE Bytes load_whole(const uint8_t* in) {
  Bytes codes = zero_bytes();
#pragma GCC unroll 8
  for (int j = 0; j < Bits; ++j) codes = or_plane(codes, load_as<uint32_t>(in + 4 * j), j);
  return codes;
}

// The codes of m elements; those whose bit in `keep` is off are stored as 0.
ACTZIP_INLINE void store_planes(const Bytes& codes, uint32_t keep, int bits, int64_t m, uint8_t* out) {
  if (m >= 32) {
    switch (bits) {
      case 1: return store_whole<1>(codes, keep, out);
      case 2: return store_whole<2>(codes, keep, out);
      case 3: return store_whole<3>(codes, keep, out);
      case 4: return store_whole<4>(codes, keep, out);
      case 5: return store_whole<5>(codes, keep, out);
      case 6: return store_whole<6>(codes, keep, out);
      case 7: return store_whole<7>(codes, keep, out);
      default: return store_whole<8>(codes, keep, out);
    }
  }
  const int64_t size = (m + 7) / 8;
  for (int j = 0; j < bits; ++j) {
    const uint32_t word = plane(codes, j) & keep;
    std::memcpy(out + size * j, &word, size_t(size));
  }
}

ACTZIP_INLINE Bytes load_planes(const uint8_t* in, int bits, int64_t m) {
  if (m >= 32) {
    switch (bits) {
      case 1: return load_whole<1>(in);
      case 2: return load_whole<2>(in);
      case 3: return load_whole<3>(in);
      case 4: return load_whole<4>(in);
      case 5: return load_whole<5>(in);
      case 6: return load_whole<6>(in);
      case 7: return load_whole<7>(in);
      default: return load_whole<8>(in);
    }
  }
  Bytes codes = zero_bytes();
  const int64_t size = (m + 7) / 8;
  for (int j = 0; j < bits; ++j) {
    uint32_t word = 0;
    std::memcpy(&word, in + size * j, size_t(size));
    codes = or_plane(codes, word, j);
  }
  return codes;
}

ACTZIP_END
