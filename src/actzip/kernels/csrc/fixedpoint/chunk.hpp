// One chunk of up to 4096 values in per-channel fixed point.
//
// Blocks of 64, each from a byte: the bitmap of its non-zeros (only with skip_zeros), then the
// codes of the values that are there, each as wide as its channel says. A code is q + 2^(bits - 1),
// q the quantized integer; code 0 marks a value that is kept as it is (NaN, infinity, or one that
// would miss the promise): these follow the last block, in order.
#pragma once

#include "bounded/bits.hpp"
#include "bounded/quant.hpp"

ACTZIP_BEGIN
namespace fixedpoint {

using bounded::BLOCK;
using bounded::CHUNK;
using bounded::PAD;

enum Rounding : int64_t { NEAREST = 0, STOCHASTIC = 1, DITHER = 2 };

struct Spec {
  int64_t n;
  const uint8_t* bits;   // per channel
  const uint8_t* steps;  // per channel, Real<T>
  const uint8_t* limits; // per channel, Real<T>: the largest error that is not kept as it is
  int64_t channels, inner;
  uint64_t seed;
  int64_t rounding;
  bool skip_zeros;
};

template <class T> constexpr int64_t chunk_room() {
  return CHUNK * (int64_t(sizeof(T)) + 2) + CHUNK / 8 + 8 * PAD;
}

template <class R>
struct Grid {
  alignas(64) R step[BLOCK], inv[BLOCK], limit[BLOCK], top[BLOCK];
  uint8_t bits[BLOCK];
  bool even;             // one width for the whole block
  int64_t channel = -1;  // the only one of the block, if there is only one
};

template <class R>
inline void fill_grid(const Spec& spec, int64_t start, Grid<R>& g) {
  const bool alone = spec.channels == 1;
  int64_t channel = alone ? 0 : start / spec.inner % spec.channels;
  int64_t left = alone ? BLOCK : spec.inner - start % spec.inner;
  if (left >= BLOCK && channel == g.channel) return;
  g.channel = left >= BLOCK ? channel : -1;
  g.even = true;
  for (int i = 0; i < BLOCK;) {
    const int64_t at = channel * int64_t(sizeof(R));
    const R step = load_as<R>(spec.steps + at);
    const R limit = spec.limits ? load_as<R>(spec.limits + at) : R(0);
    const R inv = step > 0 ? R(1) / step : R(0);
    const uint8_t bits = spec.bits[channel];
    const int end = int(min_of<int64_t>(BLOCK, i + left));
    for (; i < end; ++i) {
      g.step[i] = step;
      g.inv[i] = inv;
      g.limit[i] = limit;
      g.top[i] = R((1 << (bits - 1)) - 1);
      g.bits[i] = bits;
    }
    g.even = g.even && bits == g.bits[0];
    left = spec.inner;
    if (++channel == spec.channels) channel = 0;
  }
}

inline void fill_dither(const Spec& spec, int64_t start, bool wanted, float* v) {
  bounded::fill_dither({0, nullptr, 1, 1, spec.seed, wanted, 0, 1}, start, v);
}

// Codes of a block, 0 for values to be kept as they are.
template <class T>
inline void quantize(const Real<T>* x, const Grid<Real<T>>& g, const float* v, bool subtract,
                     uint32_t* u) {
  using R = Real<T>;
  constexpr R magic = bounded::Magic<R>::value;
  for (int i = 0; i < BLOCK; ++i) {
    R q = (x[i] * g.inv[i] + R(v[i]) + magic) - magic;
    q = q < g.top[i] ? q : g.top[i];
    q = q > -g.top[i] ? q : -g.top[i];
    const R back = widen(narrow<T>((q - (subtract ? R(v[i]) : R(0))) * g.step[i]));
    const R error = bit_cast<R>(bounded::magnitude_bits(x[i] - back));
    u[i] = error <= g.limit[i] ? uint32_t(int32_t(q) + int32_t(g.top[i]) + 1) : 0;
  }
}

inline int pack_codes(const uint32_t* u, const uint8_t* bits, bool even, uint64_t present,
                      uint8_t* out) {
  if (even) {
    bounded::pack(u, present, bits[0], out);
    return bounded::bytes_of(__builtin_popcountll(present) * bits[0]);
  }
  uint8_t* const begin = out;
  uint64_t held = 0;
  int filled = 0;
  for (; present != 0; present &= present - 1) {
    const int i = __builtin_ctzll(present);
    held |= uint64_t{u[i]} << filled;
    for (filled += bits[i]; filled >= 8; filled -= 8, held >>= 8) *out++ = uint8_t(held);
  }
  if (filled > 0) *out++ = uint8_t(held);
  return int(out - begin);
}

template <class T>
inline int64_t encode_chunk(const Spec& spec, const T* x, int64_t c, uint8_t* out) {
  using R = Real<T>;
  const int64_t first = c * CHUNK;
  const int n = int(min_of<int64_t>(CHUNK, spec.n - first));
  Grid<R> g;
  alignas(64) R wide[BLOCK];
  alignas(64) float v[BLOCK];
  alignas(64) uint32_t u[BLOCK];
  T kept[CHUNK];
  int64_t count = 0;
  uint8_t* at = out;
  for (int64_t begin = first; begin < first + n; begin += BLOCK) {
    const int here = int(min_of<int64_t>(BLOCK, first + n - begin));
    for (int i = 0; i < BLOCK; ++i) wide[i] = i < here ? widen(x[begin + i]) : R(0);
    fill_grid(spec, begin, g);
    fill_dither(spec, begin, spec.rounding != NEAREST, v);
    quantize<T>(wide, g, v, spec.rounding == DITHER, u);
    uint64_t present = bounded::first_bits(here);
    if (spec.skip_zeros) {
      for (int i = 0; i < BLOCK; ++i) present &= ~(uint64_t{wide[i] == 0} << i);
      store_as(at, present);
      at += bounded::bytes_of(here);
    }
    for (int i = 0; i < here; ++i)
      if (u[i] == 0 && present >> i & 1) kept[count++] = x[begin + i];
    at += pack_codes(u, g.bits, g.even, present, at);
  }
  std::memcpy(at, kept, size_t(count) * sizeof(T));
  return at - out + count * int64_t(sizeof(T));
}

// Codes of a block; false when bytes run out. Absent ones are left as they are.
template <class R>
inline bool unpack_codes(const Grid<R>& g, uint64_t present, const uint8_t*& at, const uint8_t* end,
                         uint32_t* u) {
  int64_t total = 0;
  for (uint64_t p = present; p != 0; p &= p - 1) total += g.bits[__builtin_ctzll(p)];
  const int bytes = bounded::bytes_of(total);
  if (end - at < bytes) return false;
  uint8_t padded[BLOCK * 2 + PAD] = {};
  bounded::copy(padded, at, bytes);
  at += bytes;
  if (g.even) {
    bounded::unpack(padded, present, g.bits[0], 0, u);
    return true;
  }
  int bit = 0;
  for (; present != 0; present &= present - 1) {
    const int i = __builtin_ctzll(present);
    const uint32_t word = load_as<uint32_t>(padded + (bit >> 3)) >> (bit & 7);
    u[i] = word & ((1u << g.bits[i]) - 1);
    bit += g.bits[i];
  }
  return true;
}

template <class T>
inline bool decode_chunk(const Spec& spec, int64_t c, const uint8_t* at, const uint8_t* end, T* out) {
  using R = Real<T>;
  const int64_t first = c * CHUNK;
  const int n = int(min_of<int64_t>(CHUNK, spec.n - first));
  Grid<R> g;
  alignas(64) float v[BLOCK];
  alignas(64) uint32_t u[BLOCK];
  uint64_t missing[CHUNK / BLOCK];
  for (int64_t begin = first; begin < first + n; begin += BLOCK) {
    const int here = int(min_of<int64_t>(BLOCK, first + n - begin));
    uint64_t present = bounded::first_bits(here);
    if (spec.skip_zeros) {
      const int bytes = bounded::bytes_of(here);
      if (end - at < bytes) return false;
      uint64_t map = 0;
      std::memcpy(&map, at, size_t(bytes));
      present &= map;
      at += bytes;
    }
    fill_grid(spec, begin, g);
    fill_dither(spec, begin, spec.rounding == DITHER, v);
    if (!unpack_codes(g, present, at, end, u)) return false;
    uint64_t& lost = missing[(begin - first) / BLOCK] = 0;
    for (int i = 0; i < here; ++i) {
      const bool there = present >> i & 1;
      lost |= uint64_t(there && u[i] == 0) << i;
      const R q = R(int32_t(there ? u[i] : 0) - int32_t(g.top[i]) - 1);
      out[begin + i] = narrow<T>(there ? (q - R(v[i])) * g.step[i] : R(0));
    }
  }
  for (int b = 0; b * BLOCK < n; ++b)
    for (uint64_t lost = missing[b]; lost != 0; lost &= lost - 1) {
      if (end - at < int64_t(sizeof(T))) return false;
      std::memcpy(out + first + b * BLOCK + __builtin_ctzll(lost), at, sizeof(T));
      at += sizeof(T);
    }
  return true;
}

}  // namespace fixedpoint
ACTZIP_END
