// Entries of the Bounded codec with the entropy stage; the flow is that of bounded.cpp, after a
// first look at every `every`-th chunk, from which the table of frequencies is made.
#include "bounded/histogram.hpp"
#include "bounded/span_decode.hpp"
#include "bounded/span_encode.hpp"

ACTZIP_BEGIN

// Counts symbols of the looked-at chunks (see histogram.hpp for counts[769]). Returns what
// these chunks take when packed plainly.
int64_t bounded_count(Buffer<const uint8_t> x, int64_t n, int64_t dtype, Buffer<const uint8_t> eb,
                      int64_t channels, int64_t inner, uint64_t seed, int64_t dither, int64_t width,
                      int64_t height, int64_t every, Buffer<int64_t> counts, int64_t threads) {
  using namespace bounded;
  if (!x.holds(n, itemsize(dtype)) ||
      !eb.holds(channels, dtype == kF64 ? 8 : 4) ||
      !counts.holds(COUNTS, 8))
    return kBadArgument;
  const Spec spec{n, eb, channels, inner, seed, dither != 0, width, height};
  if (!valid(spec) || every < 1) return kBadArgument;
  for (int s = 0; s < COUNTS; ++s) counts[s] = 0;
  const int64_t chunks = ceil_div(n, CHUNK);
  return with_rounding(dtype, spec.dither, [&](auto type, auto rounding) -> int64_t {
    using T = decltype(type);
    int64_t packed = 0;
    parallel_for(ceil_div(chunks, every), threads, [&](int64_t k) {
      const int64_t first = looked_at(k, every, chunks) * CHUNK;
      const int count = int(min_of<int64_t>(CHUNK, n - first));
      Histogram found;
      Symbols symbols;
      alignas(64) uint8_t bytes[chunk_room<T>()], headers[BLOCKS_PER_CHUNK];
      const T* const from = x.as<const T>() + first;
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

// Squeezes chain k from its last span on; f(span, squeezed) gets each.
template <class T, bool DITHER, class F>
inline void squeeze_chain(const bounded::Spec& spec, const T* x, int64_t k,
                          const bounded::Squeeze& how, const entropy::EncodeTable& table, F&& f) {
  bounded::Squeezed bytes;
  entropy::States states;
  const int64_t first = k * how.chain, spans = ceil_div(spec.n, entropy::SPAN);
  for (int64_t span = min_of(spans, first + how.chain) - 1; span >= first; --span) {
    bounded::squeeze_span<T, DITHER>(spec, x, span, how, table, states, bytes);
    f(span, bytes);
  }
}

inline bool valid(const bounded::Squeeze& how, const bounded::Spec& spec) {
  const bool known = how.kind >= bounded::UNSIGNED && how.kind <= bounded::DIFFERENCES;
  return known && how.chain >= 1 && how.chain <= entropy::MAX_CHAIN && bounded::valid(spec);
}

// levels, raw: side information per chunk; sizes per span, -1 when its extra bits found no room;
// place as in bounded_encode, without the raw values. Returns the sum of the sizes.
int64_t bounded_squeeze(Buffer<const uint8_t> x, int64_t n, int64_t dtype, Buffer<const uint8_t> eb,
                        int64_t channels, int64_t inner, uint64_t seed, int64_t dither,
                        int64_t width, int64_t height, Buffer<const uint16_t> frequency,
                        int64_t kind, int64_t chain, Buffer<uint8_t> levels, Buffer<uint8_t> raw,
                        Buffer<int64_t> sizes, Buffer<int64_t> place, Buffer<uint8_t> workspace,
                        int64_t threads) {
  using namespace bounded;
  if (!x.holds(n, itemsize(dtype)) ||
      !eb.holds(channels, dtype == kF64 ? 8 : 4) ||
      !frequency.holds(256, 2) ||
      !levels.holds(ceil_div(n, CHUNK), 1) ||
      !raw.holds(ceil_div(n, CHUNK), 8) ||
      !sizes.holds(ceil_div(n, entropy::SPAN), 8) ||
      !place.holds(ceil_div(n, entropy::SPAN), 8))
    return kBadArgument;
  const Spec spec{n, eb, channels, inner, seed, dither != 0, width, height};
  const Squeeze how{frequency, Kind(kind), chain, levels, raw};
  if (!valid(how, spec)) return kBadArgument;
  entropy::EncodeTable table;
  entropy::make_encode(frequency, table);
  return with_rounding(dtype, spec.dither, [&](auto type, auto rounding) -> int64_t {
    using T = decltype(type);
    int64_t used = 0, total = 0;
    const auto put = [&](int64_t span, const Squeezed& bytes) {
      sizes[span] = bytes.bytes < 0 ? -1 : bytes.bytes + bytes.raw_bytes;
      place[span] = -1;
      if (bytes.bytes < 0) return;
      atomic_add(&total, sizes[span]);
      const int64_t at = __atomic_fetch_add(&used, bytes.bytes, __ATOMIC_RELAXED);
      if (at + bytes.bytes > workspace.bytes) return;
      place[span] = at;
      std::memcpy(workspace + at, bytes.begin, size_t(bytes.bytes));
    };
    parallel_for(ceil_div(n, entropy::SPAN * chain), threads, [&](int64_t k) {
      squeeze_chain<T, decltype(rounding)::value>(spec, x.as<const T>(), k, how,
                                                  table, put);
    });
    return total;
  });
}

// Whether spans of these sizes go into the payload.
inline bool spans_fit(const int64_t* sizes, const int64_t* offsets, int64_t spans, int64_t bytes) {
  for (int64_t k = 0; k < spans; ++k)
    if (sizes[k] < 0 || offsets[k] < 0 || offsets[k] > bytes - sizes[k]) return false;
  return true;
}

// Puts all spans in order into `data`; `offsets`: where each begins.
int64_t bounded_squeeze_gather(Buffer<const uint8_t> x, int64_t n, int64_t dtype,
                               Buffer<const uint8_t> eb, int64_t channels, int64_t inner,
                               uint64_t seed, int64_t dither, int64_t width, int64_t height,
                               Buffer<const uint16_t> frequency, int64_t kind, int64_t chain,
                               Buffer<uint8_t> levels, Buffer<uint8_t> raw,
                               Buffer<const int64_t> sizes, Buffer<const int64_t> place,
                               Buffer<const uint8_t> workspace, Buffer<const int64_t> offsets,
                               Buffer<uint8_t> data, int64_t threads) {
  using namespace bounded;
  if (!x.holds(n, itemsize(dtype)) ||
      !eb.holds(channels, dtype == kF64 ? 8 : 4) ||
      !frequency.holds(256, 2) ||
      !levels.holds(ceil_div(n, CHUNK), 1) ||
      !raw.holds(ceil_div(n, CHUNK), 8) ||
      !sizes.holds(ceil_div(n, entropy::SPAN), 8) ||
      !place.holds(ceil_div(n, entropy::SPAN), 8) ||
      !offsets.holds(ceil_div(n, entropy::SPAN), 8) ||
      !spans_fit(sizes, offsets, ceil_div(n, entropy::SPAN), data.bytes))
    return kBadArgument;
  const Spec spec{n, eb, channels, inner, seed, dither != 0, width, height};
  const Squeeze how{frequency, Kind(kind), chain, levels, raw};
  if (!valid(how, spec)) return kBadArgument;
  entropy::EncodeTable table;
  entropy::make_encode(frequency, table);
  const int64_t spans = ceil_div(n, entropy::SPAN);
  return with_rounding(dtype, spec.dither, [&](auto type, auto rounding) -> int64_t {
    using T = decltype(type);
    for (int64_t span = 0; span < spans; ++span) {
      const int64_t waiting = sizes[span] - raw_bytes<T>(spec, span, raw);  // in the workspace
      if (waiting < 0 || (place[span] >= 0 && place[span] > workspace.bytes - waiting))
        return kBadArgument;
    }
    const T* const from = x.as<const T>();
    const auto put = [&](int64_t span, const uint8_t* bytes) {
      const int64_t kept = raw_bytes<T>(spec, span, raw);
      uint8_t* const to = data + offsets[span];
      std::memcpy(to, bytes, size_t(sizes[span] - kept));
      copy_raw(spec, from, span, raw, to + sizes[span] - kept);
    };
    parallel_for(ceil_div(spans, chain), threads, [&](int64_t k) {
      const int64_t end = min_of(spans, (k + 1) * chain);
      bool ready = true;
      for (int64_t span = k * chain; span < end; ++span) ready &= place[span] >= 0;
      if (ready)
        for (int64_t span = k * chain; span < end; ++span) put(span, workspace + place[span]);
      else
        squeeze_chain<T, decltype(rounding)::value>(
            spec, from, k, how, table,
            [&](int64_t span, const Squeezed& again) { put(span, again.begin); });
    });
    return kOk;
  });
}

// The values of `count` chains from k on, one or two; false for bytes that no encoder writes.
template <class T, bool DITHER>
inline bool unsqueeze_chains(const bounded::Spec& spec, int64_t k, int count,
                             const bounded::Squeeze& how, const entropy::DecodeTable& table,
                             const int64_t* offsets, const uint8_t* data, int64_t length, T* out) {
  using namespace bounded;
  const int64_t spans = ceil_div(spec.n, entropy::SPAN);
  entropy::States states[2];
  Opened from[2];
  for (int64_t j = 0; j < how.chain; ++j) {
    entropy::Words words[2];
    int open = 0;
    for (; open < count && (k + open) * how.chain + j < spans; ++open) {
      const int64_t span = (k + open) * how.chain + j;
      const int64_t begin = offsets[span], end = span + 1 < spans ? offsets[span + 1] : length;
      if (begin < 0 || begin > end || end > length) return false;
      if (!open_span<T>(spec, span, how, states[open], data + begin, data + end, from[open], words[open]))
        return false;
    }
    if (!entropy::decode_spans(words, open, table)) return false;
    for (int c = 0; c < open; ++c)
      if (!unsqueeze_span<T, DITHER>(spec, (k + c) * how.chain + j, how, from[c], out)) return false;
  }
  return states[0].at_rest() && states[1].at_rest();
}

int64_t bounded_unsqueeze(Buffer<const uint8_t> levels, Buffer<const uint8_t> raw,
                          Buffer<const int64_t> offsets, Buffer<const uint8_t> data,
                          Buffer<const uint16_t> frequency, int64_t kind, int64_t chain, int64_t n,
                          int64_t dtype, Buffer<const uint8_t> eb, int64_t channels, int64_t inner,
                          uint64_t seed, int64_t dither, int64_t width, int64_t height,
                          Buffer<uint8_t> out, int64_t threads) {
  using namespace bounded;
  if (!out.holds(n, itemsize(dtype)) ||
      !eb.holds(channels, dtype == kF64 ? 8 : 4) ||
      !frequency.holds(256, 2) ||
      !levels.holds(ceil_div(n, CHUNK), 1) ||
      !raw.holds(ceil_div(n, CHUNK), 8) ||
      !offsets.holds(ceil_div(n, entropy::SPAN), 8))
    return kBadArgument;
  const Spec spec{n, eb, channels, inner, seed, dither != 0, width, height};
  const Squeeze how{frequency, Kind(kind), chain, const_cast<uint8_t*>(levels.at),
                    const_cast<uint8_t*>(raw.at)};
  if (!valid(spec)) return kBadArgument;
  entropy::DecodeTable table;
  if (!valid(how, spec) || !entropy::make_decode(frequency, table)) return kDamaged;
  return with_rounding(dtype, spec.dither, [&](auto type, auto rounding) -> int64_t {
    using T = decltype(type);
    const int64_t chains = ceil_div(n, entropy::SPAN * chain);
    const int64_t together = entropy::side_by_side(chains, threads);
    int64_t damaged = 0;
    parallel_for(ceil_div(chains, together), threads, [&](int64_t i) {
      const int count = int(min_of(together, chains - i * together));
      if (!unsqueeze_chains<T, decltype(rounding)::value>(spec, i * together, count, how, table, offsets,
                                                          data, data.bytes, out.as<T>()))
        atomic_add(&damaged, 1);
    });
    return damaged ? kDamaged : kOk;
  });
}

ACTZIP_END

ACTZIP_ENTRY(bounded_count)
ACTZIP_ENTRY(bounded_squeeze)
ACTZIP_ENTRY(bounded_squeeze_gather)
ACTZIP_ENTRY(bounded_unsqueeze)
