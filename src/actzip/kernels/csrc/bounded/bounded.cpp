// Entries of the Bounded codec.
//
// Encoding is one parallel pass: each chunk is made on the stack and its bytes are put wherever
// the workspace has room, in the order in which threads finish; `place` remembers where. When all
// sizes are known the caller allocates, and bounded_gather copies the chunks into their order. A
// chunk that found no room is encoded again, straight into its place: so the workspace may have
// any size, and the bytes depend on nothing but the input.
#include "bounded/decode.hpp"
#include "bounded/encode.hpp"

ACTZIP_BEGIN

// sizes: per chunk, length in the low 56 bits and level above; place: where in the workspace, -1
// when it had no room. Returns the sum of the lengths.
int64_t bounded_encode(Buffer<const uint8_t> x, int64_t n, int64_t dtype, Buffer<const uint8_t> eb,
                       int64_t channels, int64_t inner, uint64_t seed, int64_t dither,
                       int64_t width, int64_t height, Buffer<uint8_t> headers,
                       Buffer<uint64_t> sizes, Buffer<int64_t> place, Buffer<uint8_t> workspace,
                       int64_t threads) {
  using namespace bounded;
  if (!x.holds(n, itemsize(dtype)) ||
      !eb.holds(channels, dtype == kF64 ? 8 : 4) ||
      !headers.holds(ceil_div(n, BLOCK), 1) ||
      !sizes.holds(ceil_div(n, CHUNK), 8) ||
      !place.holds(ceil_div(n, CHUNK), 8))
    return kBadArgument;
  const Spec spec{n, eb, channels, inner, seed, dither != 0, width, height};
  if (!valid(spec)) return kBadArgument;
  return with_rounding(dtype, spec.dither, [&](auto type, auto rounding) -> int64_t {
    using T = decltype(type);
    int64_t used = 0, total = 0;
    parallel_for(ceil_div(n, CHUNK), threads, [&](int64_t c) {
      alignas(64) uint8_t bytes[chunk_room<T>()];
      int chosen = 0;
      const int64_t size = encode_chunk<T, decltype(rounding)::value>(
          spec, x.as<const T>(), c, headers, bytes, chosen);
      sizes[c] = uint64_t(size) | uint64_t(chosen) << 56;
      atomic_add(&total, size);
      const int64_t at = __atomic_fetch_add(&used, size, __ATOMIC_RELAXED);
      place[c] = at + size <= workspace.bytes ? at : -1;
      if (place[c] >= 0) copy(workspace + at, bytes, size);
    });
    return total;
  });
}

// Puts all chunks in order into `data` (exactly as long as bounded_encode said) and turns sizes
// into the payload's table of offsets.
int64_t bounded_gather(Buffer<const uint8_t> x, int64_t n, int64_t dtype, Buffer<const uint8_t> eb,
                       int64_t channels, int64_t inner, uint64_t seed, int64_t dither,
                       int64_t width, int64_t height, Buffer<uint8_t> headers,
                       Buffer<const uint64_t> sizes, Buffer<const int64_t> place,
                       Buffer<const uint8_t> workspace, Buffer<uint8_t> table, Buffer<uint8_t> data,
                       int64_t threads) {
  using namespace bounded;
  if (!x.holds(n, itemsize(dtype)) ||
      !eb.holds(channels, dtype == kF64 ? 8 : 4) ||
      !headers.holds(ceil_div(n, BLOCK), 1) ||
      !sizes.holds(ceil_div(n, CHUNK), 8) ||
      !place.holds(ceil_div(n, CHUNK), 8) ||
      !table.holds(ceil_div(n, CHUNK), 8) ||
      !chunks_fit(sizes.at, place, ceil_div(n, CHUNK), workspace.bytes, data.bytes))
    return kBadArgument;
  const Spec spec{n, eb, channels, inner, seed, dither != 0, width, height};
  if (!valid(spec)) return kBadArgument;
  const int64_t chunks = ceil_div(n, CHUNK);
  uint64_t offset = 0;
  for (int64_t c = 0; c < chunks; ++c) {
    store_as(table + 8 * c, offset | (sizes[c] & ~OFFSET_MASK));
    offset += sizes[c] & OFFSET_MASK;
  }
  return with_rounding(dtype, spec.dither, [&](auto type, auto rounding) -> int64_t {
    using T = decltype(type);
    parallel_for(chunks, threads, [&](int64_t c) {
      uint8_t* const to = data + (load_as<uint64_t>(table + 8 * c) & OFFSET_MASK);
      const int64_t size = int64_t(sizes[c] & OFFSET_MASK);
      if (place[c] >= 0) {
        copy(to, workspace + place[c], size);
        return;
      }
      alignas(64) uint8_t bytes[chunk_room<T>()];
      int chosen = 0;
      encode_chunk<T, decltype(rounding)::value>(spec, x.as<const T>(), c, headers,
                                                 bytes, chosen);
      copy(to, bytes, size);
    });
    return kOk;
  });
}

int64_t bounded_decode(Buffer<const uint8_t> table, Buffer<const uint8_t> headers,
                       Buffer<const uint8_t> data, int64_t n, int64_t dtype,
                       Buffer<const uint8_t> eb, int64_t channels, int64_t inner, uint64_t seed,
                       int64_t dither, int64_t width, int64_t height, Buffer<uint8_t> out,
                       int64_t threads) {
  using namespace bounded;
  if (!out.holds(n, itemsize(dtype)) ||
      !eb.holds(channels, dtype == kF64 ? 8 : 4) ||
      !headers.holds(ceil_div(n, BLOCK), 1) ||
      !table.holds(ceil_div(n, CHUNK), 8))
    return kBadArgument;
  const Spec spec{n, eb, channels, inner, seed, dither != 0, width, height};
  if (!valid(spec)) return kBadArgument;
  const int64_t chunks = ceil_div(n, CHUNK);
  return with_rounding(dtype, spec.dither, [&](auto type, auto rounding) -> int64_t {
    using T = decltype(type);
    int64_t damaged = 0;
    parallel_for(chunks, threads, [&](int64_t c) {
      const uint64_t entry = load_as<uint64_t>(table + 8 * c);
      const int64_t begin = int64_t(entry & OFFSET_MASK);
      const int64_t end = c + 1 < chunks
          ? int64_t(load_as<uint64_t>(table + 8 * (c + 1)) & OFFSET_MASK) : data.bytes;
      const int chosen = int(entry >> 56);
      int64_t status = kDamaged;
      if (begin <= end && end <= data.bytes && chosen < LEVELS)
        status = decode_chunk<T, decltype(rounding)::value>(
            spec, c, headers, chosen, Source{data + begin, data + end, data + data.bytes},
            out.as<T>());
      atomic_add(&damaged, status == kOk ? 0 : 1);
    });
    return damaged ? kDamaged : kOk;
  });
}

ACTZIP_END

ACTZIP_ENTRY(bounded_encode)
ACTZIP_ENTRY(bounded_gather)
ACTZIP_ENTRY(bounded_decode)
