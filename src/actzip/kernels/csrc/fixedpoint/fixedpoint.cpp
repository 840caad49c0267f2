// Entries of the FixedPoint codec; sizes, places and gathering as in bounded.cpp.
#include "fixedpoint/chunk.hpp"

ACTZIP_BEGIN

namespace fixedpoint {

inline bool valid(const Spec& s) {
  if (s.n < 0 || s.channels < 1 || s.inner < 1) return false;
  for (int64_t c = 0; c < s.channels; ++c)
    if (s.bits[c] < 2 || s.bits[c] > 16) return false;
  return true;
}

template <class I>
inline void atomic_max(I* slot, I value) {
  I held = __atomic_load_n(slot, __ATOMIC_RELAXED);
  while (value > held && !__atomic_compare_exchange_n(slot, &held, value, true, __ATOMIC_RELAXED,
                                                      __ATOMIC_RELAXED)) {
  }
}

}  // namespace fixedpoint

// largest[channels], Real<T>, zeroed by the caller: the largest finite magnitude per channel.
int64_t fixedpoint_range(Buffer<const uint8_t> x, int64_t n, int64_t dtype, int64_t channels,
                         int64_t inner, Buffer<uint8_t> largest, int64_t threads) {
  if (channels < 1 || inner < 1 || !x.holds(n, itemsize(dtype)) ||
      !largest.holds(channels, dtype == kF64 ? 8 : 4))
    return kBadArgument;
  return with_float(dtype, [&](auto type) -> int64_t {
    using T = decltype(type);
    using I = bounded::IntOf<Real<T>>;
    const I infinity = bounded::magnitude_bits(Real<T>(__builtin_inf()));
    const T* const from = x.as<const T>();
    I* const found = largest.as<I>();
    parallel_for(ceil_div(n, bounded::CHUNK), threads, [&](int64_t c) {
      const int64_t end = min_of(n, (c + 1) * bounded::CHUNK);
      for (int64_t i = c * bounded::CHUNK; i < end;) {
        const int64_t stop = channels == 1 ? end : min_of(end, (i / inner + 1) * inner);
        const int64_t channel = i / inner % channels;
        I most = 0;
        for (; i < stop; ++i) {
          const I bits = bounded::magnitude_bits(widen(from[i]));
          most = max_of(most, bits < infinity ? bits : I(0));
        }
        fixedpoint::atomic_max(found + channel, most);
      }
    });
    return kOk;
  });
}

int64_t fixedpoint_encode(Buffer<const uint8_t> x, int64_t n, int64_t dtype,
                          Buffer<const uint8_t> bits, Buffer<const uint8_t> steps,
                          Buffer<const uint8_t> limits, int64_t channels, int64_t inner,
                          uint64_t seed, int64_t rounding, int64_t skip_zeros,
                          Buffer<int64_t> sizes, Buffer<int64_t> place, Buffer<uint8_t> workspace,
                          int64_t threads) {
  using namespace fixedpoint;
  if (!x.holds(n, itemsize(dtype)) ||
      !bits.holds(channels, 1) ||
      !steps.holds(channels, dtype == kF64 ? 8 : 4) ||
      !limits.holds(channels, dtype == kF64 ? 8 : 4) ||
      !sizes.holds(ceil_div(n, CHUNK), 8) ||
      !place.holds(ceil_div(n, CHUNK), 8))
    return kBadArgument;
  const Spec spec{n, bits, steps, limits, channels, inner, seed, rounding, skip_zeros != 0};
  if (!valid(spec)) return kBadArgument;
  return with_float(dtype, [&](auto type) -> int64_t {
    using T = decltype(type);
    int64_t used = 0;
    parallel_for(ceil_div(n, CHUNK), threads, [&](int64_t c) {
      alignas(64) uint8_t bytes[chunk_room<T>()];
      sizes[c] = encode_chunk(spec, x.as<const T>(), c, bytes);
      const int64_t at = __atomic_fetch_add(&used, sizes[c], __ATOMIC_RELAXED);
      place[c] = at + sizes[c] <= workspace.bytes ? at : -1;
      if (place[c] >= 0) bounded::copy(workspace + at, bytes, sizes[c]);
    });
    return used;
  });
}

int64_t fixedpoint_gather(Buffer<const uint8_t> x, int64_t n, int64_t dtype,
                          Buffer<const uint8_t> bits, Buffer<const uint8_t> steps,
                          Buffer<const uint8_t> limits, int64_t channels, int64_t inner,
                          uint64_t seed, int64_t rounding, int64_t skip_zeros,
                          Buffer<const int64_t> sizes, Buffer<const int64_t> place,
                          Buffer<const uint8_t> workspace, Buffer<uint8_t> offsets,
                          Buffer<uint8_t> data, int64_t threads) {
  using namespace fixedpoint;
  if (!x.holds(n, itemsize(dtype)) ||
      !bits.holds(channels, 1) ||
      !steps.holds(channels, dtype == kF64 ? 8 : 4) ||
      !limits.holds(channels, dtype == kF64 ? 8 : 4) ||
      !sizes.holds(ceil_div(n, CHUNK), 8) ||
      !place.holds(ceil_div(n, CHUNK), 8) ||
      !offsets.holds(ceil_div(n, CHUNK), 8) ||
      !bounded::chunks_fit(sizes.at, place, ceil_div(n, CHUNK), workspace.bytes, data.bytes))
    return kBadArgument;
  const Spec spec{n, bits, steps, limits, channels, inner, seed, rounding, skip_zeros != 0};
  if (!valid(spec)) return kBadArgument;
  const int64_t chunks = ceil_div(n, CHUNK);
  for (int64_t c = 0, offset = 0; c < chunks; offset += sizes[c++]) store_as(offsets + 8 * c, offset);
  return with_float(dtype, [&](auto type) -> int64_t {
    using T = decltype(type);
    parallel_for(chunks, threads, [&](int64_t c) {
      uint8_t* const to = data + load_as<int64_t>(offsets + 8 * c);
      if (place[c] >= 0) {
        bounded::copy(to, workspace + place[c], sizes[c]);
        return;
      }
      alignas(64) uint8_t bytes[chunk_room<T>()];
      encode_chunk(spec, x.as<const T>(), c, bytes);
      bounded::copy(to, bytes, sizes[c]);
    });
    return kOk;
  });
}

int64_t fixedpoint_decode(Buffer<const uint8_t> offsets, Buffer<const uint8_t> data, int64_t n,
                          int64_t dtype, Buffer<const uint8_t> bits, Buffer<const uint8_t> steps,
                          int64_t channels, int64_t inner, uint64_t seed, int64_t rounding,
                          int64_t skip_zeros, Buffer<uint8_t> out, int64_t threads) {
  using namespace fixedpoint;
  if (!out.holds(n, itemsize(dtype)) ||
      !bits.holds(channels, 1) ||
      !steps.holds(channels, dtype == kF64 ? 8 : 4) ||
      !offsets.holds(ceil_div(n, CHUNK), 8))
    return kBadArgument;
  const Spec spec{n, bits, steps, nullptr, channels, inner, seed, rounding, skip_zeros != 0};
  if (!valid(spec)) return kBadArgument;
  const int64_t chunks = ceil_div(n, CHUNK);
  return with_float(dtype, [&](auto type) -> int64_t {
    using T = decltype(type);
    int64_t damaged = 0;
    parallel_for(chunks, threads, [&](int64_t c) {
      const int64_t begin = load_as<int64_t>(offsets + 8 * c);
      const int64_t end = c + 1 < chunks ? load_as<int64_t>(offsets + 8 * (c + 1)) : data.bytes;
      const bool fits = 0 <= begin && begin <= end && end <= data.bytes;
      if (!fits || !decode_chunk(spec, c, data + begin, data + end, out.as<T>()))
        atomic_add(&damaged, 1);
    });
    return damaged ? kDamaged : kOk;
  });
}

ACTZIP_END

ACTZIP_ENTRY(fixedpoint_range)
ACTZIP_ENTRY(fixedpoint_encode)
ACTZIP_ENTRY(fixedpoint_gather)
ACTZIP_ENTRY(fixedpoint_decode)
