// Entries of the Dithered codec: count codes of some chunks, from which contexts are chosen; encode
// all chains; gather them; decode. The format is in kernels/dithered_layout.py.
//
// As in bounded.cpp a finished chain waits in the workspace until all sizes are known, or is encoded
// again straight into its place.
#include "dithered/decode.hpp"

ACTZIP_BEGIN

namespace dithered {

constexpr int COUNTED = 64;  // codes counted for each bin, the last with all above
constexpr int64_t COUNTS = BINS * COUNTED + 256;

// The looked-at chunk of each `every`: not always the same of them, since channels repeat.
inline int64_t looked_at(int64_t k, int64_t every, int64_t chunks) {
  const int64_t aside = int64_t(uint32_t(k) * 0x9e3779b1u >> 8) * every >> 24;
  return k * every + aside < chunks ? k * every + aside : k * every;
}

inline bool holds(const Spec& s, int64_t dtype, Buffer<const uint8_t> eb, Buffer<const uint8_t> low,
                  Buffer<const uint8_t> origin, Buffer<const uint8_t> above) {
  const int64_t item = dtype == kF64 ? 8 : 4;
  if (!valid(s) || !eb.holds(s.channels, item)) return false;
  return !s.sides || (low.holds(s.channels, item) && origin.holds(s.channels, item) &&
                      above.holds(s.channels, item));
}

inline bool holds(const Contexts& c, Buffer<const uint8_t> bin, Buffer<const uint8_t> group,
                  Buffer<const uint16_t> frequency) {
  return c.count >= 1 && bin.holds(BINS, 1) && group.holds(c.count, 1) &&
         frequency.holds(256 * c.count, 2) && valid(c);
}

}  // namespace dithered

// counts[threads][16640]: how often each of 64 codes is in each of 256 bins of v, and each of 256
// codes in all; both with all larger ones at their end. Zero before.
int64_t dithered_count(Buffer<const uint8_t> x, int64_t n, int64_t dtype, Buffer<const uint8_t> eb,
                       Buffer<const uint8_t> low, Buffer<const uint8_t> origin,
                       Buffer<const uint8_t> above, int64_t channels, int64_t inner, uint64_t seed,
                       int64_t sides, int64_t every, Buffer<int32_t> counts, int64_t threads) {
  using namespace dithered;
  const Spec spec{n, eb, low, origin, above, channels, inner, seed, sides != 0};
  if (!x.holds(n, itemsize(dtype)) || !holds(spec, dtype, eb, low, origin, above) || every < 1 ||
      threads < 1 || !counts.holds(threads, 4 * COUNTS))
    return kBadArgument;
  const int64_t chunks = ceil_div(n, CHUNK);
  return with_float(dtype, [&](auto type) -> int64_t {
    using T = decltype(type);
    parallel_for(ceil_div(chunks, every), threads, [&](int64_t k) {
      int32_t* const found = counts + thread_number() * COUNTS;
      uint64_t raw;
      quantize_chunk<T>(spec, x.as<const T>(), looked_at(k, every, chunks), raw,
                        [&](int64_t, int count, const float* v, const uint32_t* code) {
                          for (int i = 0; i < count; ++i) {
                            ++found[bin_of(v[i]) * COUNTED + min_of<uint32_t>(code[i], COUNTED - 1)];
                            ++found[BINS * COUNTED + min_of<uint32_t>(code[i], ESCAPE)];
                          }
                        });
    });
    return kOk;
  });
}

// sizes: bytes of each chain (-1: too many extra bits) and of its coded symbols, pair by pair;
// place: where it waits in the workspace, without raw values. Returns the sum of the sizes.
int64_t dithered_encode(Buffer<const uint8_t> x, int64_t n, int64_t dtype, Buffer<const uint8_t> eb,
                        Buffer<const uint8_t> low, Buffer<const uint8_t> origin,
                        Buffer<const uint8_t> above, int64_t channels, int64_t inner, uint64_t seed,
                        int64_t sides, Buffer<const uint8_t> bin, Buffer<const uint8_t> group,
                        Buffer<const uint16_t> frequency, int64_t count, int64_t chain,
                        Buffer<uint8_t> levels, Buffer<uint8_t> raw, Buffer<int64_t> sizes,
                        Buffer<int64_t> place, Buffer<uint8_t> workspace, Buffer<uint8_t> scratch,
                        int64_t threads) {
  using namespace dithered;
  const Spec spec{n, eb, low, origin, above, channels, inner, seed, sides != 0};
  const Contexts c{bin, group, frequency, count, chain};
  if (!x.holds(n, itemsize(dtype)) || !holds(spec, dtype, eb, low, origin, above) ||
      !holds(c, bin, group, frequency) || !levels.holds(ceil_div(n, CHUNK), 1) ||
      !raw.holds(ceil_div(n, CHUNK), 8) || !sizes.holds(ceil_div(n, SPAN * chain), 16) ||
      !place.holds(ceil_div(n, SPAN * chain), 8) || threads < 1 ||
      !scratch.holds(threads, sizeof(Scratch)))
    return kBadArgument;
  entropy::EncodeTable tables[CONTEXTS];
  for (int64_t k = 0; k < count; ++k) entropy::make_encode(frequency + 256 * k, tables[k]);
  return with_float(dtype, [&](auto type) -> int64_t {
    using T = decltype(type);
    int64_t used = 0, total = 0;
    parallel_for(ceil_div(n, SPAN * chain), threads, [&](int64_t k) {
      Scratch& s = scratch.as<Scratch>()[thread_number()];
      const Encoded e = encode_chain<T>(spec, x.as<const T>(), k, c, tables, levels, raw, s);
      const int64_t bytes = e.coded_bytes + e.extra_bytes;
      place[k] = sizes[2 * k] = -1;
      sizes[2 * k + 1] = e.coded_bytes;
      if (e.extra_bytes < 0) return;
      sizes[2 * k] = bytes + raw_bytes(spec, k, chain, raw, sizeof(T));
      atomic_add(&total, sizes[2 * k]);
      const int64_t at = __atomic_fetch_add(&used, bytes, __ATOMIC_RELAXED);
      if (at + bytes > workspace.bytes) return;
      place[k] = at;
      put_chain(e, s, workspace + at);
    });
    return total;
  });
}

// Puts all chains in order into `data`; `offsets`: where each begins.
int64_t dithered_gather(Buffer<const uint8_t> x, int64_t n, int64_t dtype, Buffer<const uint8_t> eb,
                        Buffer<const uint8_t> low, Buffer<const uint8_t> origin,
                        Buffer<const uint8_t> above, int64_t channels, int64_t inner, uint64_t seed,
                        int64_t sides, Buffer<const uint8_t> bin, Buffer<const uint8_t> group,
                        Buffer<const uint16_t> frequency, int64_t count, int64_t chain,
                        Buffer<uint8_t> levels, Buffer<uint8_t> raw, Buffer<const int64_t> sizes,
                        Buffer<const int64_t> place, Buffer<const uint8_t> workspace,
                        Buffer<uint8_t> scratch, Buffer<const int64_t> offsets, Buffer<uint8_t> data,
                        int64_t threads) {
  using namespace dithered;
  const Spec spec{n, eb, low, origin, above, channels, inner, seed, sides != 0};
  const Contexts c{bin, group, frequency, count, chain};
  if (!x.holds(n, itemsize(dtype)) || !holds(spec, dtype, eb, low, origin, above) ||
      !holds(c, bin, group, frequency) || !levels.holds(ceil_div(n, CHUNK), 1) ||
      !raw.holds(ceil_div(n, CHUNK), 8) || !sizes.holds(ceil_div(n, SPAN * chain), 16) ||
      !place.holds(ceil_div(n, SPAN * chain), 8) || threads < 1 ||
      !scratch.holds(threads, sizeof(Scratch)) || !offsets.holds(ceil_div(n, SPAN * chain), 8))
    return kBadArgument;
  const int64_t chains = ceil_div(n, SPAN * chain);
  for (int64_t k = 0; k < chains; ++k) {
    const int64_t waiting = sizes[2 * k] - raw_bytes(spec, k, chain, raw, itemsize(dtype));
    if (waiting < 0 || offsets[k] < 0 || offsets[k] > data.bytes - sizes[2 * k]) return kBadArgument;
    if (place[k] >= 0 && place[k] > workspace.bytes - waiting) return kBadArgument;
  }
  entropy::EncodeTable tables[CONTEXTS];
  for (int64_t k = 0; k < count; ++k) entropy::make_encode(frequency + 256 * k, tables[k]);
  return with_float(dtype, [&](auto type) -> int64_t {
    using T = decltype(type);
    const T* const from = x.as<const T>();
    int64_t changed = 0;
    parallel_for(chains, threads, [&](int64_t k) {
      const int64_t waiting = sizes[2 * k] - raw_bytes(spec, k, chain, raw, sizeof(T));
      uint8_t* const to = data + offsets[k];
      if (place[k] >= 0) {
        std::memcpy(to, workspace + place[k], size_t(waiting));
      } else {
        Scratch& s = scratch.as<Scratch>()[thread_number()];
        const Encoded e = encode_chain<T>(spec, from, k, c, tables, levels, raw, s);
        if (e.extra_bytes < 0 || e.coded_bytes + e.extra_bytes != waiting) return atomic_add(&changed, 1);
        put_chain(e, s, to);
      }
      each_raw(spec, k, chain, raw, sizeof(T), [&](int64_t b, int64_t bytes, int64_t at) {
        std::memcpy(to + waiting + at, from + b * BLOCK, size_t(bytes));
      });
    });
    return changed ? kBadArgument : kOk;
  });
}

// offsets: where each chain begins, and where the last ends; coded: bytes of its coded symbols.
int64_t dithered_decode(Buffer<const uint8_t> levels, Buffer<const uint8_t> raw,
                        Buffer<const int64_t> offsets, Buffer<const int64_t> coded,
                        Buffer<const uint8_t> data, Buffer<const uint8_t> bin,
                        Buffer<const uint8_t> group, Buffer<const uint16_t> frequency, int64_t count,
                        int64_t chain, int64_t n, int64_t dtype, Buffer<const uint8_t> eb,
                        Buffer<const uint8_t> low, Buffer<const uint8_t> origin,
                        Buffer<const uint8_t> above, int64_t channels, int64_t inner, uint64_t seed,
                        int64_t sides, Buffer<uint8_t> out, int64_t threads) {
  using namespace dithered;
  const Spec spec{n, eb, low, origin, above, channels, inner, seed, sides != 0};
  const Contexts c{bin, group, frequency, count, chain};
  if (!out.holds(n, itemsize(dtype)) || !holds(spec, dtype, eb, low, origin, above) ||
      !holds(c, bin, group, frequency) || !levels.holds(ceil_div(n, CHUNK), 1) ||
      !raw.holds(ceil_div(n, CHUNK), 8) || !coded.holds(ceil_div(n, SPAN * chain), 8) ||
      !offsets.holds(ceil_div(n, SPAN * chain) + 1, 8))
    return kBadArgument;
  const int64_t chunks = ceil_div(n, CHUNK), chains = ceil_div(n, SPAN * chain);
  for (int64_t k = 0; k < chunks; ++k)
    if (levels[k] >= bounded::LEVELS) return kDamaged;
  for (int64_t b = ceil_div(n, BLOCK); b < chunks * BLOCKS_PER_CHUNK; ++b)
    if (is_raw(raw, b)) return kDamaged;
  for (int64_t k = 0; k < chains; ++k)
    if (offsets[k] < 0 || offsets[k] > offsets[k + 1] || offsets[k + 1] > data.bytes) return kDamaged;
  Tables tables;
  if (!make_tables(c, tables)) return kDamaged;
  return with_float(dtype, [&](auto type) -> int64_t {
    using T = decltype(type);
    int64_t damaged = 0;
    parallel_for(chains, threads, [&](int64_t k) {
      if (!decode_chain<T>(spec, k, c, tables, levels, raw, data + offsets[k], coded[k],
                           offsets[k + 1] - offsets[k], out.as<T>()))
        atomic_add(&damaged, 1);
    });
    return damaged ? kDamaged : kOk;
  });
}

ACTZIP_END

ACTZIP_ENTRY(dithered_count)
ACTZIP_ENTRY(dithered_encode)
ACTZIP_ENTRY(dithered_gather)
ACTZIP_ENTRY(dithered_decode)
