// Dual: block averages in half the bits, the rest of each map as a group code; reference/dual.py.
//
// Payload: averages of all maps | group payload of what is left, a map being a group. A map that is
// raw there holds its original values. zero: code 0 is an exact zero. last.cpp is the same for
// maps whose channels are innermost in memory.
#include "dual/average.hpp"
#include "dual/blocks.hpp"
#include "group/code.hpp"

ACTZIP_BEGIN

// Maps that are coded at once: one, while it is in the first cache, when it is whole blocks of 32.
inline int64_t maps_at_once(const Layout& l) { return l.group % 32 ? l.chunk() : 1; }

// Numbers of the scratch of all threads.
inline int64_t scratch_room(const Layout& l, const MapShape& m, int64_t threads) {
  const int64_t one = maps_at_once(l) * l.group + 2 * in_steps(m.w.size) + max_of(stretch(m), row_and_on(m));
  return max_of<int64_t>(1, threads) * one;
}

// A thread's scratch: what is left of those maps, and a few rows.
template <class R> struct Scratch {
  R *rest, *columns, *spread;
  bool in_blocks;
  Scratch(void* all, const Layout& l, const MapShape& m) {
    const int64_t maps = maps_at_once(l) * l.group, columns_size = 2 * in_steps(m.w.size);
    const int64_t spread_size = max_of(stretch(m), row_and_on(m));
    rest = static_cast<R*>(all) + thread_number() * (maps + columns_size + spread_size);
    columns = rest + maps;
    spread = columns + columns_size;
    in_blocks = is_in_blocks(m);
  }
};

// What is left of a map without its averages, and the range of that. The next map is read ahead.
template <bool Zero, class T>
inline Range<Real<T>> subtract_averages(const T* x, const MapShape& m, const Averages<Real<T>>& mean,
                                        const Scratch<Real<T>>& own, Real<T>* rest) {
  using R = Real<T>;
  if constexpr (sizeof(R) == 4)
    if (own.in_blocks) return subtract_map<Zero>(x, m, mean, own.spread, rest);
  each_stretch(m, own.spread, mean, [&](int64_t i, int64_t n, const R* spread) {
    for (int64_t k = 0; k < n; k += 64 / int64_t(sizeof(T)))
      __builtin_prefetch(x + m.elements() + i + k, 0, 2);
    subtract_row<Zero>(x + i, spread, rest + i, n);
  });
  return find_range<Zero>(static_cast<const R*>(rest), m.elements());
}

template <bool Zero, class T>
inline Meta<Real<T>> split_map(const T* x, const T* end, const MapShape& m, int levels,
                               const Averages<Real<T>>& mean, const Scratch<Real<T>>& own, Real<T>* rest) {
  using R = Real<T>;
  const bool sane = average_map<Zero>(x, end, m, own.columns, mean);
  Meta<R> found = make_meta<R>(subtract_averages<Zero>(x, m, mean, own, rest), levels);
  if (!sane) found = {0, 0, true};
  if (found.raw)  // the bits of a NaN are not the same everywhere
    for (int64_t i = 0; i < m.averages(); ++i) mean.set(i, 0);
  return found;
}

template <class T, bool Zero>
int64_t dual_encode_as(const T* x, const Layout& l, const MapShape& m, int64_t rounding,
                       uint64_t seed, uint8_t* averages, uint8_t* data, void* scratch,
                       int64_t threads) {
  using R = Real<T>;
  const MetaArray<R> meta{data, l.groups()};
  const Coding c = coding(l.bits[0], rounding, Zero);
  int64_t raw = 0;
  each_chunk(l, threads, [&](int64_t, int64_t g0, int64_t g1) {
    const Scratch<R> own(scratch, l, m);
    Dither dither{seed};
    int64_t raw_here = 0;
    for (int64_t a = g0; a < g1; a += maps_at_once(l)) {
      const int64_t b = min_of(g1, a + maps_at_once(l));
      for (int64_t g = a; g < b; ++g) {
        const Averages<R> mean{averages + g * m.averages() * int64_t(sizeof(R) / 2)};
        R* rest = own.rest + (g - a) * l.group;
        const Meta<R> found = split_map<Zero>(x + g * l.group, x + l.n, m, c.levels(), mean, own, rest);
        meta.set(g, found);
        raw_here += found.raw ? l.group : 0;
      }
      encode_groups<R>(own.rest, a * l.group, l, 0, a, b, c, dither, meta, data);
    }
    atomic_add(&raw, raw_here);
  });
  return raw;
}

// The maps [g0, g1) when they are whole blocks; false when they are not, or the dither's key changes.
template <class T, bool Zero>
inline bool decode_maps(const uint8_t* averages, const uint8_t* data, const Layout& l, const MapShape& m,
                        int64_t g0, int64_t g1, const Coding& c, Dither& dither,
                        const Scratch<float>& own, bool stream, T* out) {
  const int64_t first = g0 * l.group / 32, last = g1 * l.group / 32 - 1;
  if (!own.in_blocks || first >> 28 != last >> 28) return false;
  const MetaArray<float> meta{const_cast<uint8_t*>(data), l.groups()};
  Noise noise(dither.at(first), first);
  const auto decode_as = [&](auto bits) {
    using B = decltype(bits);
    const auto decode = c.subtract ? decode_map<B, Zero, true, T> : decode_map<B, Zero, false, T>;
    for (int64_t g = g0; g < g1; ++g) {
      const Meta<float> of = meta.get(g);
      const Averages<float> mean{const_cast<uint8_t*>(averages) + g * m.averages() * 2};
      decode(data + l.offsets[0] + g * l.group / 8 * bits, bits, {of.lo, of.step}, noise, m, mean, own.spread,
             stream, out + g * l.group);
    }
  };
#ifndef ACTZIP_COMPACT
  if (c.bits == 2)  // what DIVISION takes
    decode_as(Bits<2>(2));
  else
#endif
    decode_as(Bits<0>(c.bits));
  if (stream) end_stream();
  return true;
}

template <class T, bool Zero>
int64_t dual_decode_as(const uint8_t* averages, const uint8_t* data, const Layout& l,
                       const MapShape& m, int64_t rounding, uint64_t seed, T* out, void* scratch,
                       int64_t threads) {
  using R = Real<T>;
  const MetaArray<R> meta{const_cast<uint8_t*>(data), l.groups()};
  const Coding c = coding(l.bits[0], rounding, Zero);
  uint8_t* means = const_cast<uint8_t*>(averages);
  const bool stream = beyond_caches(l.n * int64_t(sizeof(T))) && can_stream(out) &&
                      l.group * int64_t(sizeof(T)) % 64 == 0;
  each_chunk(l, threads, [&](int64_t, int64_t g0, int64_t g1) {
    const Scratch<R> own(scratch, l, m);
    Dither dither{seed};
    if constexpr (sizeof(R) == 4)
      if (decode_maps<T, Zero>(averages, data, l, m, g0, g1, c, dither, own, stream, out)) return;
    for (int64_t a = g0; a < g1; a += maps_at_once(l)) {
      const int64_t b = min_of(g1, a + maps_at_once(l));
      decode_groups(data, l, 0, a, b, c, dither, meta, own.rest, a * l.group);
      for (int64_t g = a; g < b; ++g) {
        const Averages<R> mean{means + g * m.averages() * int64_t(sizeof(R) / 2)};
        const R* const rest = own.rest + (g - a) * l.group;
        each_stretch(m, own.spread, mean, [&](int64_t i, int64_t n, const R* spread) {
          add_row<Zero>(rest + i, spread, out + g * l.group + i, n);
        });
      }
    }
  });
  return kOk;
}

// x: `maps` maps of d * h * w elements. Returns the number of elements in raw maps.
int64_t dual_encode(Buffer<const void> x, int64_t dtype, int64_t maps, int64_t d, int64_t h,
                    int64_t w, int64_t block, int64_t original, Buffer<const uint8_t> bits,
                    Buffer<const int64_t> offsets, int64_t rounding, int64_t zero, uint64_t seed,
                    Buffer<uint8_t> averages, Buffer<uint8_t> data, Buffer<void> scratch,
                    int64_t threads) {
  if (block < 1) return kBadArgument;
  if (!sides_fit(maps, d, h, w) || !rows_hold(1, maps * d * h * w, d * h * w, bits, offsets))
    return kBadArgument;
  const MapShape m{Axis::of(d, block, original), Axis::of(h, block, original), Axis::of(w, block, original)};
  const Layout l{1, maps * m.elements(), m.elements(), bits, offsets};
  return with_float(dtype, [&](auto element) -> int64_t {
    using T = decltype(element);
    if (!x.holds(l.n, sizeof(T)) || !scratch.holds(scratch_room(l, m, threads), sizeof(Real<T>)))
      return kBadArgument;
    if (!l.fits(data.bytes, meta_bytes<T>(l))) return kBadArgument;
    if (averages.bytes != maps * m.averages() * int64_t(sizeof(Real<T>) / 2)) return kBadArgument;
    const auto encode = zero ? dual_encode_as<T, true> : dual_encode_as<T, false>;
    return encode(x.as<const T>(), l, m, rounding, seed, averages, data, scratch, threads);
  });
}

int64_t dual_decode(Buffer<const uint8_t> averages, Buffer<const uint8_t> data, Buffer<void> out,
                    int64_t dtype, int64_t maps, int64_t d, int64_t h, int64_t w, int64_t block,
                    int64_t original, Buffer<const uint8_t> bits, Buffer<const int64_t> offsets,
                    int64_t rounding, int64_t zero, uint64_t seed, Buffer<void> scratch,
                    int64_t threads) {
  if (block < 1) return kBadArgument;
  if (!sides_fit(maps, d, h, w) || !rows_hold(1, maps * d * h * w, d * h * w, bits, offsets))
    return kBadArgument;
  const MapShape m{Axis::of(d, block, original), Axis::of(h, block, original), Axis::of(w, block, original)};
  const Layout l{1, maps * m.elements(), m.elements(), bits, offsets};
  return with_float(dtype, [&](auto element) -> int64_t {
    using T = decltype(element);
    if (!out.holds(l.n, sizeof(T)) || !scratch.holds(scratch_room(l, m, threads), sizeof(Real<T>)))
      return kBadArgument;
    if (!l.fits(data.bytes, meta_bytes<T>(l))) return kDamaged;
    if (averages.bytes != maps * m.averages() * int64_t(sizeof(Real<T>) / 2)) return kDamaged;
    if (!raw_fits<T>(data, l, data.bytes)) return kDamaged;
    T* p = out.as<T>();
    const auto decode = zero ? dual_decode_as<T, true> : dual_decode_as<T, false>;
    decode(averages, data, l, m, rounding, seed, p, scratch, threads);
    restore_raw(data, l, p);
    return kOk;
  });
}

ACTZIP_END

ACTZIP_ENTRY(dual_encode)
ACTZIP_ENTRY(dual_decode)
