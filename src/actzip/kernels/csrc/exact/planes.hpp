// Bit planes: the codes of 32 elements as one word per bit; see reference/planes.py.
#pragma once

#include "common/simd.hpp"

ACTZIP_BEGIN

inline int64_t planes_size(int64_t n, int bits) { return (n / 32 * 4 + (n % 32 + 7) / 8) * bits; }

ACTZIP_INLINE uint32_t first_bits(int64_t m) { return m >= 32 ? 0xffffffffu : (1u << m) - 1; }

template <int N> ACTZIP_INLINE void store_whole(Bits<N>, const Bytes& codes, uint32_t keep, uint8_t* out) {
#pragma GCC unroll 8
  for (int j = 0; j < N; ++j) store_as<uint32_t>(out + 4 * j, plane_where(keep, codes, j));
}
ACTZIP_INLINE void store_whole(Bits<0> bits, const Bytes& codes, uint32_t keep, uint8_t* out) {
  PlanesDown planes(codes, bits);
  for (int j = bits; j-- > 0;) store_as<uint32_t>(out + 4 * j, planes.next(keep));
}

// The codes of m elements; those whose bit in `keep` is off are stored as 0.
ACTZIP_INLINE void store_planes(const Bytes& codes, uint32_t keep, int bits, int64_t m, uint8_t* out) {
  if (m >= 32) {
    with_bits(bits, [&](auto n) { store_whole(n, codes, keep, out); });
    return;
  }
  const int64_t size = (m + 7) / 8;
  for (int j = 0; j < bits; ++j) {
    const uint32_t word = plane(codes, j) & keep;
    std::memcpy(out + size * j, &word, size_t(size));
  }
}

ACTZIP_INLINE Bytes load_planes(const uint8_t* in, int bits, int64_t m) {
  if (m >= 32) {
    return with_bits(bits, [&](auto n) { return load_whole(n, in); });
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
