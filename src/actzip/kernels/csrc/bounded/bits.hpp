// Bit packing of up to 64 small integers, least significant bit first; `present` says which of
// them are there (all of a block, or the set bits of its zero bitmap). With BMI2 one pext or pdep
// moves eight codes of up to 8 bits, or four of up to 14, and skips the absent ones on the way.
// Buffers are padded: packing may write, and unpacking may read, PAD bytes past the end.
#pragma once

#include "bounded/format.hpp"

#ifdef __BMI2__
#include <immintrin.h>
#endif

ACTZIP_BEGIN
namespace bounded {

constexpr int PAD = 32;

inline uint64_t first_bits(int n) { return n < 64 ? (uint64_t{1} << n) - 1 : ~uint64_t{0}; }

inline void pack_any(const uint32_t* u, uint64_t present, int width, uint8_t* out) {
  uint64_t held = 0;
  int bits = 0;
  for (; present != 0; present &= present - 1) {
    held |= uint64_t{u[__builtin_ctzll(present)]} << bits;
    for (bits += width; bits >= 8; bits -= 8, held >>= 8) *out++ = uint8_t(held);
  }
  if (bits > 0) *out = uint8_t(held);
}

// Codes plus `add` where present, zero elsewhere.
inline void unpack_any(const uint8_t* in, uint64_t present, int width, uint32_t add, uint32_t* u) {
  const uint64_t mask = first_bits(width);
  int bit = 0;
  for (int i = 0; i < BLOCK; ++i, present >>= 1) {
    const uint64_t word = load_as<uint64_t>(in + (bit >> 3)) >> (bit & 7);
    const bool here = (present & 1) != 0;
    u[i] = here ? uint32_t(word & mask) + add : 0;
    bit += here ? width : 0;
  }
}

#ifdef __BMI2__

template <class Lane> struct Lanes;
template <> struct Lanes<uint8_t> {
  static constexpr uint64_t ones = 0x0101010101010101, full = 255;
};
template <> struct Lanes<uint16_t> {
  static constexpr uint64_t ones = 0x0001000100010001, full = 65535;
};

template <class Lane>
inline void pack_lanes(const Lane* u, uint64_t present, int width, uint8_t* out) {
  constexpr int count = 8 / int(sizeof(Lane));
  const uint64_t codes = Lanes<Lane>::ones * first_bits(width);
  uint64_t held = 0;
  int bits = 0;
  for (int i = 0; i < BLOCK; i += count, present >>= count) {
    const uint64_t here = present & first_bits(count);
    const uint64_t lanes = _pdep_u64(here, Lanes<Lane>::ones) * Lanes<Lane>::full;
    const uint64_t word = load_as<uint64_t>(reinterpret_cast<const uint8_t*>(u + i));
    held |= _pext_u64(word, lanes & codes) << bits;
    bits += __builtin_popcountll(here) * width;
    store_as(out, held);
    out += bits >> 3;
    held = bits < 64 ? held >> (bits & ~7) : 0;
    bits &= 7;
  }
}

inline void widen_lanes(uint64_t word, uint8_t, uint32_t* u) {
  const __m256i wide = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(int64_t(word)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(u), wide);
}
inline void widen_lanes(uint64_t word, uint16_t, uint32_t* u) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(u), _mm_cvtepu16_epi32(_mm_cvtsi64_si128(int64_t(word))));
}

template <class Lane>
inline void unpack_lanes(const uint8_t* in, uint64_t present, int width, uint32_t add, uint32_t* u) {
  constexpr int count = 8 / int(sizeof(Lane));
  const uint64_t codes = Lanes<Lane>::ones * first_bits(width);
  int bit = 0;
  for (int i = 0; i < BLOCK; i += count, present >>= count) {
    const uint64_t here = present & first_bits(count);
    const uint64_t places = _pdep_u64(here, Lanes<Lane>::ones);
    const uint64_t word = load_as<uint64_t>(in + (bit >> 3)) >> (bit & 7);
    widen_lanes(_pdep_u64(word, places * Lanes<Lane>::full & codes) + places * add, Lane{}, u + i);
    bit += __builtin_popcountll(here) * width;
  }
}

template <class Lane>
inline void narrow_and_pack(const uint32_t* u, uint64_t present, int width, uint8_t* out) {
  alignas(64) Lane lanes[BLOCK];
  for (int i = 0; i < BLOCK; ++i) lanes[i] = Lane(u[i]);
  pack_lanes(lanes, present, width, out);
}

inline void pack(const uint32_t* u, uint64_t present, int width, uint8_t* out) {
  if (width <= 8) return narrow_and_pack<uint8_t>(u, present, width, out);
  if (width <= 14) return narrow_and_pack<uint16_t>(u, present, width, out);
  pack_any(u, present, width, out);
}

// A code plus one may need another bit: 255 + 1 would run into the next lane.
inline void unpack(const uint8_t* in, uint64_t present, int width, uint32_t add, uint32_t* u) {
  if (width <= 7 || (width == 8 && add == 0))
    return unpack_lanes<uint8_t>(in, present, width, add, u);
  if (width <= 14) return unpack_lanes<uint16_t>(in, present, width, add, u);
  unpack_any(in, present, width, add, u);
}

#else

inline void pack(const uint32_t* u, uint64_t present, int width, uint8_t* out) {
  pack_any(u, present, width, out);
}

inline void unpack(const uint8_t* in, uint64_t present, int width, uint32_t add, uint32_t* u) {
  unpack_any(in, present, width, add, u);
}

#endif

inline uint64_t nonzero_bits(const int32_t* s) {
  uint64_t mask = 0;
#ifdef __AVX512F__
  for (int i = 0; i < BLOCK; i += 16) {
    const __m512i v = _mm512_loadu_si512(s + i);
    mask |= uint64_t{_mm512_test_epi32_mask(v, v)} << i;
  }
  return mask;
#elif defined(__AVX2__)
  for (int i = 0; i < BLOCK; i += 8) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(s + i));
    const __m256i zero = _mm256_cmpeq_epi32(v, _mm256_setzero_si256());
    mask |= uint64_t(unsigned(_mm256_movemask_ps(_mm256_castsi256_ps(zero)))) << i;
  }
  return ~mask;
#else
  for (int i = 0; i < BLOCK; ++i) mask |= uint64_t{s[i] != 0} << i;
  return mask;
#endif
}

}  // namespace bounded
ACTZIP_END
