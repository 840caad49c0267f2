// Group: low-bit codes with a least value and a step per group; see reference/group.py.
#include "common/fill.hpp"
#include "group/code.hpp"

ACTZIP_BEGIN

template <class T, bool Zero>
int64_t encode_all(const T* x, const Layout& l, int64_t rounding, uint64_t seed, uint8_t* data,
                   int64_t threads) {
  using R = Real<T>;
  const MetaArray<R> meta{data, l.samples * l.groups()};
  int64_t raw = 0;
  each_chunk(l, threads, [&](int64_t s, int64_t g0, int64_t g1) {
    const Coding c = coding(l.bits[s], rounding, Zero);
    const T* row = x + s * l.n;
    Dither dither{seed};
    int64_t raw_here = 0;
    // A few groups at a time: their ranges do not wait for each other, and all of them are still in
    // the first cache when they are coded.
    const int64_t few = l.group % 32 ? g1 - g0 : max_of<int64_t>(1, kStretch / l.group);
    for (int64_t a = g0; a < g1; a += few) {
      const int64_t b = min_of(g1, a + few);
      for (int64_t g = a; g < b; ++g) {
        const int64_t length = l.length(g);
        const Meta<R> m = make_meta<R>(find_range<Zero>(row + g * l.group, length), c.levels());
        meta.set(s * l.groups() + g, m);
        raw_here += m.raw ? length : 0;
      }
      encode_groups(row, 0, l, s, a, b, c, dither, meta, data);
    }
    atomic_add(&raw, raw_here);
  });
  return raw;
}

template <class T, bool Zero>
void decode_all(const uint8_t* data, const Layout& l, int64_t rounding, uint64_t seed, T* out,
                int64_t threads) {
  const MetaArray<Real<T>> meta{const_cast<uint8_t*>(data), l.samples * l.groups()};
  const bool large = beyond_caches(l.samples * l.n * int64_t(sizeof(T)));
  each_chunk(l, threads, [&](int64_t s, int64_t g0, int64_t g1) {
    Dither dither{seed};
    const Coding c = coding(l.bits[s], rounding, Zero);
    T* row = out + s * l.n;
    const bool stream = large && can_stream(row) && l.group % 32 == 0;
    decode_groups(data, l, s, g0, g1, c, dither, meta, row, 0, stream);
    if (stream) end_stream();
  });
}

// Returns the number of elements in raw groups; when it is not zero, group_raw must follow.
int64_t group_encode(Buffer<const void> x, int64_t dtype, int64_t samples, int64_t n, int64_t group,
                     Buffer<const uint8_t> bits, Buffer<const int64_t> offsets, int64_t rounding,
                     int64_t zero, uint64_t seed, Buffer<uint8_t> data, int64_t threads) {
  if (!rows_hold(samples, n, group, bits, offsets)) return kBadArgument;
  const Layout l{samples, n, group, bits, offsets};
  return with_float(dtype, [&](auto element) -> int64_t {
    using T = decltype(element);
    if (!x.holds(samples * n, sizeof(T)) || !l.fits(data.bytes, meta_bytes<T>(l))) return kBadArgument;
    const T* p = x.as<const T>();
    return zero ? encode_all<T, true>(p, l, rounding, seed, data, threads)
                : encode_all<T, false>(p, l, rounding, seed, data, threads);
  });
}

// Copies the raw groups of x behind the codes.
int64_t group_raw(Buffer<const void> x, int64_t dtype, int64_t samples, int64_t n, int64_t group,
                  Buffer<const uint8_t> bits, Buffer<const int64_t> offsets, Buffer<uint8_t> data) {
  if (!rows_hold(samples, n, group, bits, offsets)) return kBadArgument;
  const Layout l{samples, n, group, bits, offsets};
  return with_float(dtype, [&](auto element) -> int64_t {
    using T = decltype(element);
    if (!x.holds(samples * n, sizeof(T)) || !l.fits(data.bytes, meta_bytes<T>(l))) return kBadArgument;
    if (!raw_fits<T>(data, l, data.bytes)) return kBadArgument;
    each_raw<T>(data, l, [&](int64_t first, int64_t length, int64_t done) {
      std::memcpy(data + offsets[samples] + done * int64_t(sizeof(T)),
                  x.as<const T>() + first, size_t(length) * sizeof(T));
    });
    return kOk;
  });
}

int64_t group_decode(Buffer<const uint8_t> data, Buffer<void> out, int64_t dtype, int64_t samples,
                     int64_t n, int64_t group, Buffer<const uint8_t> bits,
                     Buffer<const int64_t> offsets, int64_t rounding, int64_t zero, uint64_t seed,
                     int64_t threads) {
  if (!rows_hold(samples, n, group, bits, offsets)) return kBadArgument;
  const Layout l{samples, n, group, bits, offsets};
  return with_float(dtype, [&](auto element) -> int64_t {
    using T = decltype(element);
    T* p = out.as<T>();
    if (!out.holds(samples * n, sizeof(T))) return kBadArgument;
    if (!l.fits(data.bytes, meta_bytes<T>(l))) return kDamaged;
    if (!raw_fits<T>(data, l, data.bytes)) return kDamaged;
    zero ? decode_all<T, true>(data, l, rounding, seed, p, threads)
         : decode_all<T, false>(data, l, rounding, seed, p, threads);
    restore_raw(data, l, p);
    return kOk;
  });
}

template <class T>
int64_t nonzero_as(const uint8_t* data, const Layout& l, T* out, T on, int64_t threads) {
  const bool large = beyond_caches(l.samples * l.n * int64_t(sizeof(T)));
  each_chunk(l, threads, [&](int64_t s, int64_t g0, int64_t g1) {
    const int64_t end = min_of(l.n, g1 * l.group), bits = l.bits[s];
    T* row = out + s * l.n;
    const bool stream = large && can_stream(row) && l.group % 32 == 0;
    for (int64_t i = g0 * l.group; i < end; i += 32) {
      const int64_t m = min_of<int64_t>(32, end - i);
      const uint8_t* in = data + l.offsets[s] + i / 8 * bits;
      uint32_t word = 0;
      if (m == 32)
        for (int64_t j = 0; j < bits; ++j) word |= load_as<uint32_t>(in + 4 * j);
      else
        word = nonzero_bytes(load_planes(in, int(bits), m));
      m == 32 ? fill32(row + i, word, on, stream) : fill_some(row + i, word, on, m);
    }
    if (stream) end_stream();
  });
  return kOk;
}

// 1 where the code is not that of zero, else 0, as any floating type or bool.
int64_t group_nonzero(Buffer<const uint8_t> data, Buffer<void> out, int64_t dtype, int64_t samples,
                      int64_t n, int64_t group, int64_t meta_item, Buffer<const uint8_t> bits,
                      Buffer<const int64_t> offsets, int64_t threads) {
  if (!rows_hold(samples, n, group, bits, offsets)) return kBadArgument;
  const Layout l{samples, n, group, bits, offsets};
  if (!out.holds(samples * n, itemsize(dtype))) return kBadArgument;
  if (!l.fits(data.bytes, 2 * samples * l.groups() * meta_item)) return kDamaged;
  if (dtype == kU8) return nonzero_as(data, l, out.as<uint8_t>(), uint8_t(1), threads);
  return with_float(dtype, [&](auto element) -> int64_t {
    using T = decltype(element);
    return nonzero_as(data, l, out.as<T>(), narrow<T>(Real<T>(1)), threads);
  });
}

ACTZIP_END

ACTZIP_ENTRY(group_nonzero)
ACTZIP_ENTRY(group_encode)
ACTZIP_ENTRY(group_raw)
ACTZIP_ENTRY(group_decode)
