// Dual: block averages in half the bits, the rest of each map as a group code; reference/dual.py.
//
// Payload: averages of all maps | group payload of what is left, a map being a group. A map that is
// raw there holds its original values. zero: code 0 is an exact zero. dual_last.cpp is the same for
// maps whose channels are innermost in memory.
#include "dual_map.hpp"
#include "group_code.hpp"

ACTZIP_BEGIN

// Maps that are coded at once: one, while it is in the first cache, when it is whole blocks of 32.
inline int64_t maps_at_once(const Layout& l) { return l.group % 32 ? l.chunk() : 1; }

// A thread's scratch: what is left of those maps, and a few rows.
template <class R> struct Scratch {
  R *rest, *columns, *spread;
  Scratch(void* all, const Layout& l, const MapShape& m) {
    const int64_t maps = maps_at_once(l) * l.group, columns_size = 2 * in_steps(m.w.size);
    rest = static_cast<R*>(all) + thread_number() * (maps + columns_size + stretch(m));
    columns = rest + maps;
    spread = columns + columns_size;
  }
};

template <bool Zero, class T>
inline Meta<Real<T>> split_map(const T* x, const T* end, const MapShape& m, int levels,
                               const Averages<Real<T>>& mean, const Scratch<Real<T>>& own, Real<T>* rest) {
  using R = Real<T>;
  const bool sane = average_map<Zero>(x, end, m, own.columns, mean);
  each_stretch(m, own.spread, mean, [&](int64_t i, int64_t n, const R* spread) {
    for (int64_t k = 0; k < n; k += 64 / int64_t(sizeof(T)))  // the next map's
      __builtin_prefetch(x + m.elements() + i + k, 0, 2);
    subtract_row<Zero>(x + i, spread, rest + i, n);
  });
  Meta<R> found = make_meta<R>(find_range<Zero>(static_cast<const R*>(rest), m.elements()), levels);
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
      encode_groups<R, Zero>(own.rest, a * l.group, l, 0, a, b, c, dither, meta, data);
    }
    atomic_add(&raw, raw_here);
  });
  return raw;
}

template <class T, bool Zero>
int64_t dual_decode_as(const uint8_t* averages, const uint8_t* data, const Layout& l,
                       const MapShape& m, int64_t rounding, uint64_t seed, T* out, void* scratch,
                       int64_t threads) {
  using R = Real<T>;
  const MetaArray<R> meta{const_cast<uint8_t*>(data), l.groups()};
  const Coding c = coding(l.bits[0], rounding, Zero);
  uint8_t* means = const_cast<uint8_t*>(averages);
  const bool stream = sizeof(T) == sizeof(R) && beyond_caches(l.n * int64_t(sizeof(T))) &&
                      can_stream(out) && l.group * int64_t(sizeof(T)) % 64 == 0;
  each_chunk(l, threads, [&](int64_t, int64_t g0, int64_t g1) {
    const Scratch<R> own(scratch, l, m);
    Dither dither{seed};
    for (int64_t a = g0; a < g1; a += maps_at_once(l)) {
      const int64_t b = min_of(g1, a + maps_at_once(l));
      decode_groups<R, Zero>(data, l, 0, a, b, c, dither, meta, own.rest, a * l.group);
      for (int64_t g = a; g < b; ++g) {
        const Averages<R> mean{means + g * m.averages() * int64_t(sizeof(R) / 2)};
        R* rest = own.rest + (g - a) * l.group;
        each_stretch(m, own.spread, mean, [&](int64_t i, int64_t n, const R* spread) {
          stream ? add_in_place<Zero>(rest + i, spread, n)
                 : add_row<Zero>(rest + i, spread, out + g * l.group + i, n);
        });
        if (stream) stream_copy(out + g * l.group, rest, l.group * int64_t(sizeof(T)));
      }
    }
  });
  return kOk;
}

// x: `maps` maps of d * h * w elements. Returns the number of elements in raw maps.
int64_t dual_encode(const void* x, int64_t dtype, int64_t maps, int64_t d, int64_t h, int64_t w,
                    int64_t block, int64_t original, const uint8_t* bits, const int64_t* offsets,
                    int64_t rounding, int64_t zero, uint64_t seed, uint8_t* averages,
                    int64_t averages_size, uint8_t* data, int64_t size, void* scratch, int64_t threads) {
  if (d < 1 || h < 1 || w < 1 || block < 1 || maps < 0) return kBadArgument;
  const MapShape m{Axis::of(d, block, original), Axis::of(h, block, original), Axis::of(w, block, original)};
  const Layout l{1, maps * m.elements(), m.elements(), bits, offsets};
  return with_float(dtype, [&](auto element) -> int64_t {
    using T = decltype(element);
    if (!l.fits(size, meta_bytes<T>(l))) return kBadArgument;
    if (averages_size != maps * m.averages() * int64_t(sizeof(Real<T>) / 2)) return kBadArgument;
    const auto encode = zero ? dual_encode_as<T, true> : dual_encode_as<T, false>;
    return encode(static_cast<const T*>(x), l, m, rounding, seed, averages, data, scratch, threads);
  });
}

int64_t dual_decode(const uint8_t* averages, int64_t averages_size, const uint8_t* data,
                    int64_t size, void* out, int64_t dtype, int64_t maps, int64_t d, int64_t h,
                    int64_t w, int64_t block, int64_t original, const uint8_t* bits,
                    const int64_t* offsets, int64_t rounding, int64_t zero, uint64_t seed,
                    void* scratch, int64_t threads) {
  if (d < 1 || h < 1 || w < 1 || block < 1 || maps < 0) return kBadArgument;
  const MapShape m{Axis::of(d, block, original), Axis::of(h, block, original), Axis::of(w, block, original)};
  const Layout l{1, maps * m.elements(), m.elements(), bits, offsets};
  return with_float(dtype, [&](auto element) -> int64_t {
    using T = decltype(element);
    if (!l.fits(size, meta_bytes<T>(l))) return kDamaged;
    if (averages_size != maps * m.averages() * int64_t(sizeof(Real<T>) / 2)) return kDamaged;
    if (!raw_fits<T>(data, l, size)) return kDamaged;
    T* p = static_cast<T*>(out);
    const auto decode = zero ? dual_decode_as<T, true> : dual_decode_as<T, false>;
    decode(averages, data, l, m, rounding, seed, p, scratch, threads);
    restore_raw(data, l, p);
    return kOk;
  });
}

ACTZIP_END

ACTZIP_ENTRY(dual_encode,
             (const void* x, int64_t dtype, int64_t maps, int64_t d, int64_t h, int64_t w,
              int64_t block, int64_t original, const uint8_t* bits, const int64_t* offsets,
              int64_t rounding, int64_t zero, uint64_t seed, uint8_t* averages,
              int64_t averages_size, uint8_t* data, int64_t size, void* scratch, int64_t threads),
             (x, dtype, maps, d, h, w, block, original, bits, offsets, rounding, zero, seed,
              averages, averages_size, data, size, scratch, threads))
ACTZIP_ENTRY(dual_decode,
             (const uint8_t* averages, int64_t averages_size, const uint8_t* data, int64_t size,
              void* out, int64_t dtype, int64_t maps, int64_t d, int64_t h, int64_t w,
              int64_t block, int64_t original, const uint8_t* bits, const int64_t* offsets,
              int64_t rounding, int64_t zero, uint64_t seed, void* scratch, int64_t threads),
             (averages, averages_size, data, size, out, dtype, maps, d, h, w, block, original,
              bits, offsets, rounding, zero, seed, scratch, threads))
