// Dual for maps whose channels are innermost in memory (channels_last, tokens); reference/dual.py.
//
// Payload: averages, those of all channels of a block side by side | metadata of all maps | codes of
// each sample in the order of memory | raw maps, which the binding writes and reads.
#include "dual/channels.hpp"

ACTZIP_BEGIN

struct Channels {
  Layout l;  // a row is a sample, a group is a map
  MapShape m;
  int64_t count;
  int64_t width() const { return count % 32 ? count : 32; }  // of a tile
  int64_t tiles() const { return count / width(); }
  int64_t positions() const { return m.elements(); }
};

// f(element of the tile, element of the sample, count, channel) for each block of 32 of a tile.
template <class G> inline void each_block(const Channels& ch, int64_t tile, G&& f) {
  if (ch.count % 32 == 0) {
    for (int64_t s = 0; s < ch.positions(); ++s) f(32 * s, s * ch.count + 32 * tile, int64_t(32), int64_t(0));
    return;
  }
  const int64_t n = ch.l.n, step = 32 % ch.count;
  int64_t channel = 0;
  for (int64_t i = 0; i < n; i += 32) {
    f(i, i, min_of<int64_t>(32, n - i), channel);
    channel += step;
    channel -= channel >= ch.count ? ch.count : 0;
  }
}

template <bool Zero, bool Noisy, class R>
inline void encode_tile(const Channels& ch, int64_t sample, int64_t tile, const Coding& c, Dither& dither,
                        const Bench<R>& own, uint8_t* data) {
  uint8_t* codes = data + ch.l.offsets[sample];
  const int64_t first = sample * ch.l.rows32();
  each_block(ch, tile, [&](int64_t at, int64_t i, int64_t n, int64_t channel) {
    const int64_t b = first + (i >> 5);
    uint8_t* out = codes + (i >> 3) * c.bits;
    const auto lo = take32(own.lo + channel, 32), factor = take32(own.factor + channel, 32);
    if constexpr (sizeof(R) == 4)
      encode32<Zero, Noisy>(take32(own.rest + at, n), lo, factor, dither.at(b), b, c.bits, c.levels(), n, out);
    else
      encode32(take32(own.rest + at, n), lo, factor, dither.at(b), b, c, n, out);
  });
}

template <bool Zero, bool Subtract, class R>
inline void decode_tile(const Channels& ch, int64_t sample, int64_t tile, const Coding& c, Dither& dither,
                        const Bench<R>& own, const uint8_t* data) {
  const uint8_t* codes = data + ch.l.offsets[sample];
  const int64_t first = sample * ch.l.rows32();
  each_block(ch, tile, [&](int64_t at, int64_t i, int64_t n, int64_t channel) {
    const int64_t b = first + (i >> 5);
    const uint8_t* in = codes + (i >> 3) * c.bits;
    const auto lo = take32(own.lo + channel, 32), factor = take32(own.factor + channel, 32);
    if constexpr (sizeof(R) == 4)
      give32(own.rest + at, decode32<R, Zero, Subtract>(in, lo, factor, dither.at(b), b, c.bits, n), n);
    else
      give32(own.rest + at, decode32(in, lo, factor, dither.at(b), b, c, n), n);
  });
}

// f(sample, tile) for all of them.
template <class G> inline void each_tile(const Channels& ch, int64_t threads, G&& f) {
  parallel_for(ch.l.samples * ch.tiles(), threads, [&](int64_t k) { f(k / ch.tiles(), k % ch.tiles()); });
}

template <class T, bool Zero>
int64_t last_encode_as(const T* x, const Channels& ch, int64_t rounding, uint64_t seed, uint8_t* averages,
                       uint8_t* data, void* scratch, int64_t threads) {
  using R = Real<T>;
  const MetaArray<R> meta{data, ch.l.samples * ch.count};
  const Coding c = coding(ch.l.bits[0], rounding, Zero);
  const int64_t width = ch.width();
  int64_t raw = 0;
  each_tile(ch, threads, [&](int64_t sample, int64_t tile) {
    const Bench<R> own(scratch, ch.m, width);
    const int64_t c0 = tile * width;
    const T* from = x + sample * ch.l.n + c0;
    split_tile_of<Zero>(from, ch.m, ch.count, width, own);
    int64_t raw_here = 0;
    for (int64_t k = 0; k < width; ++k) {
      const Meta<R> found = meta_of(own, k, c.levels());
      meta.set(sample * ch.count + c0 + k, found);
      own.lo[k] = found.lo;
      own.factor[k] = reciprocal(found.step);
      raw_here += found.raw ? ch.positions() : 0;
      if (found.raw)  // the bits of a NaN are not the same everywhere
        for (int64_t b = 0; b < ch.m.averages(); ++b) own.means[b * width + k] = 0;
    }
    for (int64_t b = 0; b < ch.m.averages(); ++b) {
      const Averages<R> to{averages + ((sample * ch.m.averages() + b) * ch.count + c0) * int64_t(sizeof(R) / 2)};
      for (int64_t k = 0; k < width; ++k) to.set(k, own.means[b * width + k]);
    }
    go_on(own, width);
    Dither dither{seed};
    c.noisy ? encode_tile<Zero, true>(ch, sample, tile, c, dither, own, data)
            : encode_tile<Zero, false>(ch, sample, tile, c, dither, own, data);
    atomic_add(&raw, raw_here);
  });
  return raw;
}

template <class T, bool Zero>
int64_t last_decode_as(const uint8_t* averages, const uint8_t* data, const Channels& ch, int64_t rounding,
                       uint64_t seed, T* out, void* scratch, int64_t threads) {
  using R = Real<T>;
  const MetaArray<R> meta{const_cast<uint8_t*>(data), ch.l.samples * ch.count};
  const Coding c = coding(ch.l.bits[0], rounding, Zero);
  const int64_t width = ch.width();
  int64_t raw = 0;
  each_tile(ch, threads, [&](int64_t sample, int64_t tile) {
    const Bench<R> own(scratch, ch.m, width);
    const int64_t c0 = tile * width;
    int64_t raw_here = 0;
    for (int64_t k = 0; k < width; ++k) {
      const Meta<R> found = meta.get(sample * ch.count + c0 + k);
      own.lo[k] = found.lo;
      own.factor[k] = found.step;
      raw_here += found.raw ? ch.positions() : 0;
    }
    go_on(own, width);
    for (int64_t b = 0; b < ch.m.averages(); ++b) {
      const int64_t at = ((sample * ch.m.averages() + b) * ch.count + c0) * int64_t(sizeof(R) / 2);
      const Averages<R> from{const_cast<uint8_t*>(averages) + at};
      for (int64_t k = 0; k < width; ++k) own.means[b * width + k] = from.get(k);
    }
    Dither dither{seed};
    c.subtract ? decode_tile<Zero, true>(ch, sample, tile, c, dither, own, data)
               : decode_tile<Zero, false>(ch, sample, tile, c, dither, own, data);
    T* to = out + sample * ch.l.n + c0;
    with_width<R>(width, [&](int64_t w) ACTZIP_LAMBDA { join_tile<Zero>(to, ch.m, ch.count, w, own); });
    atomic_add(&raw, raw_here);
  });
  return raw;
}

// Whether sizes, averages and codes of so many bytes belong together.
template <class T> inline bool last_fits(const Channels& ch, int64_t averages_size, int64_t size) {
  const int64_t maps = ch.l.samples * ch.count, half = int64_t(sizeof(Real<T>) / 2);
  return ch.l.fits(size, 2 * maps * half) && averages_size == maps * ch.m.averages() * half;
}

inline Channels channels_of(int64_t samples, int64_t count, int64_t d, int64_t h, int64_t w, int64_t block,
                            int64_t original, const uint8_t* bits, const int64_t* offsets) {
  const MapShape m{Axis::of(d, block, original), Axis::of(h, block, original), Axis::of(w, block, original)};
  return {Layout{samples, m.elements() * count, m.elements(), bits, offsets}, m, count};
}

// x: `samples` samples of d * h * w positions of `count` channels. Returns the elements in raw maps.
int64_t dual_last_encode(Buffer<const void> x, int64_t dtype, int64_t samples, int64_t count,
                         int64_t d, int64_t h, int64_t w, int64_t block, int64_t original,
                         Buffer<const uint8_t> bits, Buffer<const int64_t> offsets,
                         int64_t rounding, int64_t zero, uint64_t seed, Buffer<uint8_t> averages,
                         Buffer<uint8_t> data, Buffer<void> scratch, int64_t threads) {
  if (block < 1 || samples < 1 || count < 1 || !sides_fit(samples, count, 1, 1) ||
      !sides_fit(samples * count, d, h, w) ||
      !rows_hold(samples, d * h * w * count, d * h * w, bits, offsets))
    return kBadArgument;
  const Channels ch = channels_of(samples, count, d, h, w, block, original, bits, offsets);
  return with_float(dtype, [&](auto element) -> int64_t {
    using T = decltype(element);
    const int64_t room = max_of<int64_t>(1, threads) * Bench<Real<T>>::size(ch.m, ch.width());
    if (!x.holds(samples * ch.l.n, sizeof(T)) || !scratch.holds(room, sizeof(Real<T>)))
      return kBadArgument;
    if (!last_fits<T>(ch, averages.bytes, data.bytes)) return kBadArgument;
    const auto encode = zero ? last_encode_as<T, true> : last_encode_as<T, false>;
    return encode(x.as<const T>(), ch, rounding, seed, averages, data, scratch, threads);
  });
}

// Returns the elements in raw maps, which are left open.
int64_t dual_last_decode(Buffer<const uint8_t> averages, Buffer<const uint8_t> data,
                         Buffer<void> out, int64_t dtype, int64_t samples, int64_t count, int64_t d,
                         int64_t h, int64_t w, int64_t block, int64_t original,
                         Buffer<const uint8_t> bits, Buffer<const int64_t> offsets,
                         int64_t rounding, int64_t zero, uint64_t seed, Buffer<void> scratch,
                         int64_t threads) {
  if (block < 1 || samples < 1 || count < 1 || !sides_fit(samples, count, 1, 1) ||
      !sides_fit(samples * count, d, h, w) ||
      !rows_hold(samples, d * h * w * count, d * h * w, bits, offsets))
    return kBadArgument;
  const Channels ch = channels_of(samples, count, d, h, w, block, original, bits, offsets);
  return with_float(dtype, [&](auto element) -> int64_t {
    using T = decltype(element);
    const int64_t room = max_of<int64_t>(1, threads) * Bench<Real<T>>::size(ch.m, ch.width());
    if (!out.holds(samples * ch.l.n, sizeof(T)) || !scratch.holds(room, sizeof(Real<T>)))
      return kBadArgument;
    if (!last_fits<T>(ch, averages.bytes, data.bytes)) return kDamaged;
    const auto decode = zero ? last_decode_as<T, true> : last_decode_as<T, false>;
    return decode(averages, data, ch, rounding, seed, out.as<T>(), scratch, threads);
  });
}

ACTZIP_END

ACTZIP_ENTRY(dual_last_encode)
ACTZIP_ENTRY(dual_last_decode)
