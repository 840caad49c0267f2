// Entries of the Bounded codec with the entropy stage; the flow is that of bounded.cpp, after a
// first look at every `every`-th chunk, from which the table of frequencies is made.
#include "bounded_histogram.hpp"
#include "bounded_span.hpp"

ACTZIP_BEGIN

// Counts symbols of the looked-at chunks: counts[0..256) as signed codes, counts[256..512) as
// unsigned ones, counts[512] negative symbols. Returns what these chunks take when packed plainly.
int64_t bounded_count(const uint8_t* x, int64_t n, int64_t dtype, const uint8_t* eb,
                      int64_t channels, int64_t inner, uint64_t seed, int64_t dither,
                      int64_t width, int64_t height, int64_t every, int64_t* counts,
                      int64_t threads) {
  using namespace bounded;
  const Spec spec{n, eb, channels, inner, seed, dither != 0, width, height};
  if (!valid(spec) || every < 1) return kBadArgument;
  for (int s = 0; s < 513; ++s) counts[s] = 0;
  return with_rounding(dtype, spec.dither, [&](auto type, auto rounding) -> int64_t {
    using T = decltype(type);
    int64_t packed = 0;
    parallel_for(ceil_div(ceil_div(n, CHUNK), every), threads, [&](int64_t k) {
      const int64_t first = k * every * CHUNK;
      const int count = int(min_of<int64_t>(CHUNK, n - first));
      Histogram found;
      Symbols symbols;
      alignas(64) uint8_t bytes[chunk_room<T>()], headers[BLOCKS_PER_CHUNK];
      const T* const from = reinterpret_cast<const T*>(x) + first;
      quantize_from<T, decltype(rounding)::value>(spec, first, from, count, symbols);
      for (int b = 0; b * BLOCK < count; ++b) {
        const int here = min_of(BLOCK, count - b * BLOCK);
        found.add(spec, first, symbols, b, here);
      }
      found.add_to(counts);
      atomic_add(&packed, pack_chunk(spec, from, first, count, symbols, headers, bytes));
    });
    return packed;
  });
}

// levels, raw: side information per chunk; sizes per span, -1 when its extra bits found no room;
// place as in bounded_encode, without the raw values. Returns the sum of the sizes.
int64_t bounded_squeeze(const uint8_t* x, int64_t n, int64_t dtype, const uint8_t* eb,
                        int64_t channels, int64_t inner, uint64_t seed, int64_t dither,
                        int64_t width, int64_t height, const uint16_t* frequency,
                        int64_t is_signed, uint8_t* levels, uint8_t* raw, int64_t* sizes,
                        int64_t* place, uint8_t* workspace, int64_t room, int64_t threads) {
  using namespace bounded;
  const Spec spec{n, eb, channels, inner, seed, dither != 0, width, height};
  if (!valid(spec)) return kBadArgument;
  const Squeeze how{frequency, is_signed != 0, levels, raw};
  entropy::EncodeTable table;
  entropy::make_encode(frequency, table);
  return with_rounding(dtype, spec.dither, [&](auto type, auto rounding) -> int64_t {
    using T = decltype(type);
    int64_t used = 0, total = 0;
    parallel_for(ceil_div(n, entropy::SPAN), threads, [&](int64_t span) {
      Squeezed bytes;
      squeeze_span<T, decltype(rounding)::value>(spec, reinterpret_cast<const T*>(x), span, how,
                                                 table, bytes);
      sizes[span] = bytes.bytes < 0 ? -1 : bytes.bytes + bytes.raw_bytes;
      place[span] = -1;
      if (bytes.bytes < 0) return;
      atomic_add(&total, sizes[span]);
      const int64_t at = __atomic_fetch_add(&used, bytes.bytes, __ATOMIC_RELAXED);
      if (at + bytes.bytes > room) return;
      place[span] = at;
      std::memcpy(workspace + at, bytes.begin, size_t(bytes.bytes));
    });
    return total;
  });
}

// Turns sizes into offsets and puts all spans in order into `data`.
int64_t bounded_squeeze_gather(const uint8_t* x, int64_t n, int64_t dtype, const uint8_t* eb,
                               int64_t channels, int64_t inner, uint64_t seed, int64_t dither,
                               int64_t width, int64_t height, const uint16_t* frequency,
                               int64_t is_signed, uint8_t* levels, uint8_t* raw,
                               const int64_t* sizes, const int64_t* place,
                               const uint8_t* workspace, uint8_t* offsets, uint8_t* data,
                               int64_t threads) {
  using namespace bounded;
  const Spec spec{n, eb, channels, inner, seed, dither != 0, width, height};
  if (!valid(spec)) return kBadArgument;
  const Squeeze how{frequency, is_signed != 0, levels, raw};
  entropy::EncodeTable table;
  entropy::make_encode(frequency, table);
  const int64_t spans = ceil_div(n, entropy::SPAN);
  for (int64_t c = 0, offset = 0; c < spans; offset += sizes[c++]) store_as(offsets + 8 * c, offset);
  return with_rounding(dtype, spec.dither, [&](auto type, auto rounding) -> int64_t {
    using T = decltype(type);
    const T* const from = reinterpret_cast<const T*>(x);
    parallel_for(spans, threads, [&](int64_t span) {
      uint8_t* const to = data + load_as<int64_t>(offsets + 8 * span);
      int64_t kept = 0;
      for (int64_t c = span * CHUNKS_PER_SPAN; c < min_of((span + 1) * CHUNKS_PER_SPAN, ceil_div(n, CHUNK)); ++c)
        kept += raw_values(load_as<uint64_t>(raw + 8 * c), int(min_of<int64_t>(CHUNK, n - c * CHUNK)));
      const int64_t bytes = sizes[span] - kept * int64_t(sizeof(T));
      copy_raw(spec, from, span, raw, to + bytes);
      if (place[span] >= 0) {
        std::memcpy(to, workspace + place[span], size_t(bytes));
        return;
      }
      Squeezed again;
      squeeze_span<T, decltype(rounding)::value>(spec, from, span, how, table, again);
      std::memcpy(to, again.begin, size_t(bytes));
    });
    return kOk;
  });
}

int64_t bounded_unsqueeze(const uint8_t* levels, const uint8_t* raw, const uint8_t* offsets,
                          const uint8_t* data, int64_t length, const uint16_t* frequency,
                          int64_t is_signed, int64_t n, int64_t dtype, const uint8_t* eb,
                          int64_t channels, int64_t inner, uint64_t seed, int64_t dither,
                          int64_t width, int64_t height, uint8_t* out, int64_t threads) {
  using namespace bounded;
  const Spec spec{n, eb, channels, inner, seed, dither != 0, width, height};
  if (!valid(spec) || length < 0) return kBadArgument;
  const Squeeze how{frequency, is_signed != 0, const_cast<uint8_t*>(levels), const_cast<uint8_t*>(raw)};
  entropy::DecodeTable table;
  if (!entropy::make_decode(frequency, table)) return kDamaged;
  const int64_t spans = ceil_div(n, entropy::SPAN);
  return with_rounding(dtype, spec.dither, [&](auto type, auto rounding) -> int64_t {
    using T = decltype(type);
    int64_t damaged = 0;
    parallel_for(spans, threads, [&](int64_t span) {
      const int64_t begin = load_as<int64_t>(offsets + 8 * span);
      const int64_t end = span + 1 < spans ? load_as<int64_t>(offsets + 8 * (span + 1)) : length;
      const bool fits = 0 <= begin && begin <= end && end <= length;
      if (!fits || !unsqueeze_span<T, decltype(rounding)::value>(
                       spec, span, how, table, data + begin, data + end, reinterpret_cast<T*>(out)))
        atomic_add(&damaged, 1);
    });
    return damaged ? kDamaged : kOk;
  });
}

ACTZIP_END

ACTZIP_ENTRY(bounded_count,
             (const uint8_t* x, int64_t n, int64_t dtype, const uint8_t* eb, int64_t channels,
              int64_t inner, uint64_t seed, int64_t dither, int64_t width, int64_t height,
              int64_t every, int64_t* counts, int64_t threads),
             (x, n, dtype, eb, channels, inner, seed, dither, width, height, every, counts, threads))
ACTZIP_ENTRY(bounded_squeeze,
             (const uint8_t* x, int64_t n, int64_t dtype, const uint8_t* eb, int64_t channels,
              int64_t inner, uint64_t seed, int64_t dither, int64_t width, int64_t height,
              const uint16_t* frequency, int64_t is_signed, uint8_t* levels, uint8_t* raw,
              int64_t* sizes, int64_t* place, uint8_t* workspace, int64_t room, int64_t threads),
             (x, n, dtype, eb, channels, inner, seed, dither, width, height, frequency, is_signed,
              levels, raw, sizes, place, workspace, room, threads))
ACTZIP_ENTRY(bounded_squeeze_gather,
             (const uint8_t* x, int64_t n, int64_t dtype, const uint8_t* eb, int64_t channels,
              int64_t inner, uint64_t seed, int64_t dither, int64_t width, int64_t height,
              const uint16_t* frequency, int64_t is_signed, uint8_t* levels, uint8_t* raw,
              const int64_t* sizes, const int64_t* place, const uint8_t* workspace,
              uint8_t* offsets, uint8_t* data, int64_t threads),
             (x, n, dtype, eb, channels, inner, seed, dither, width, height, frequency, is_signed,
              levels, raw, sizes, place, workspace, offsets, data, threads))
ACTZIP_ENTRY(bounded_unsqueeze,
             (const uint8_t* levels, const uint8_t* raw, const uint8_t* offsets,
              const uint8_t* data, int64_t length, const uint16_t* frequency, int64_t is_signed,
              int64_t n, int64_t dtype, const uint8_t* eb, int64_t channels, int64_t inner,
              uint64_t seed, int64_t dither, int64_t width, int64_t height, uint8_t* out,
              int64_t threads),
             (levels, raw, offsets, data, length, frequency, is_signed, n, dtype, eb, channels,
              inner, seed, dither, width, height, out, threads))
