// The walk of the group code over chunks of groups: what Group and Dual share.
#pragma once

#include "group/layout.hpp"

ACTZIP_BEGIN

// f(row, first group, end group) for every chunk of groups.
template <class G>
inline void each_chunk(const Layout& l, int64_t threads, G&& f) {
  const int64_t per_row = l.chunks();
  parallel_for(l.samples * per_row, threads, [&](int64_t c) {
    const int64_t g0 = c % per_row * l.chunk();
    f(c / per_row, g0, min_of(l.groups(), g0 + l.chunk()));
  });
}

// Codes of the groups [g0, g1) of row s, whose metadata is there; x[i - origin] is element i.
template <class T, bool Zero, bool Noisy>
inline void encode_walk(const T* x, int64_t origin, const Layout& l, int64_t s, int64_t g0,
                        int64_t g1, const Coding& c, Dither& dither,
                        const MetaArray<Real<T>>& meta, uint8_t* data) {
  using R = Real<T>;
  uint8_t* codes = data + l.offsets[s];
  const int64_t first_block = s * l.rows32();
  const auto value = [&](int64_t g) {
    const Meta<R> m = meta.get(s * l.groups() + g);
    return Pair<R>{m.lo, reciprocal(m.step)};
  };
  const auto block = [&](int64_t i, int64_t m, const auto& lo, const auto& inverse) {
    const int64_t b = first_block + (i >> 5);
    uint8_t* out = codes + (i >> 3) * c.bits;
    if constexpr (sizeof(R) == 4)
      encode32<Zero, Noisy>(take32(x + (i - origin), m), lo, inverse, dither.at(b), b, c.bits,
                            c.levels(), m, out);
    else
      encode32(take32(x + (i - origin), m), lo, inverse, dither.at(b), b, c, m, out);
  };
  const auto run = [&](int64_t i, int64_t groups, int64_t blocks, const Pair<R>* each) {
    if constexpr (sizeof(R) == 4)
      each_key(dither, Run{each, groups, blocks, false, Key{}, first_block + (i >> 5)},
               [&](int64_t done, const Run& r) {
        const T* from = x + (i - origin) + 32 * done;
        uint8_t* out = codes + ((i >> 3) + 4 * done) * c.bits;
        with_bits(c.bits, [&](auto bits) { encode_run<decltype(bits)::value, Zero, Noisy>(from, r, out); });
      });
    else
      for (int64_t b = 0; b < groups * blocks; ++b)
        block(i + 32 * b, int64_t(32), spread<R>(each[b / blocks].lo), spread<R>(each[b / blocks].factor));
  };
  walk<R>(l, g0, g1, value, run, block);
}

template <class T, bool Zero>
inline void encode_groups(const T* x, int64_t origin, const Layout& l, int64_t s, int64_t g0,
                          int64_t g1, const Coding& c, Dither& dither,
                          const MetaArray<Real<T>>& meta, uint8_t* data) {
  c.noisy ? encode_walk<T, Zero, true>(x, origin, l, s, g0, g1, c, dither, meta, data)
          : encode_walk<T, Zero, false>(x, origin, l, s, g0, g1, c, dither, meta, data);
}

// Elements of the groups [g0, g1) of row s into x; element i goes to x[i - origin].
template <class T, bool Zero, bool Subtract>
inline void decode_walk(const uint8_t* data, const Layout& l, int64_t s, int64_t g0,
                        int64_t g1, const Coding& c, Dither& dither,
                        const MetaArray<Real<T>>& meta, T* x, int64_t origin, bool stream) {
  using R = Real<T>;
  const uint8_t* codes = data + l.offsets[s];
  const int64_t first_block = s * l.rows32();
  const auto value = [&](int64_t g) {
    const Meta<R> m = meta.get(s * l.groups() + g);
    return Pair<R>{m.lo, m.step};
  };
  const auto block = [&](int64_t i, int64_t m, const auto& lo, const auto& step) {
    const int64_t b = first_block + (i >> 5);
    const uint8_t* in = codes + (i >> 3) * c.bits;
    if constexpr (sizeof(R) == 4)
      give32(x + (i - origin), decode32<T, Zero, Subtract>(in, lo, step, dither.at(b), b, c.bits, m), m);
    else
      give32(x + (i - origin), decode32(in, lo, step, dither.at(b), b, c, m), m);
  };
  const auto run = [&](int64_t i, int64_t groups, int64_t blocks, const Pair<R>* each) {
    if constexpr (sizeof(R) == 4)
      each_key(dither, Run{each, groups, blocks, stream, Key{}, first_block + (i >> 5)},
               [&](int64_t done, const Run& r) {
        const uint8_t* from = codes + ((i >> 3) + 4 * done) * c.bits;
        T* to = x + (i - origin) + 32 * done;
        with_bits(c.bits, [&](auto bits) { decode_run<decltype(bits)::value, Zero, Subtract>(from, r, to); });
      });
    else
      for (int64_t b = 0; b < groups * blocks; ++b)
        block(i + 32 * b, int64_t(32), spread<R>(each[b / blocks].lo), spread<R>(each[b / blocks].factor));
  };
  walk<R>(l, g0, g1, value, run, block);
}

template <class T, bool Zero>
inline void decode_groups(const uint8_t* data, const Layout& l, int64_t s, int64_t g0, int64_t g1,
                          const Coding& c, Dither& dither, const MetaArray<Real<T>>& meta, T* x,
                          int64_t origin, bool stream = false) {
  c.subtract ? decode_walk<T, Zero, true>(data, l, s, g0, g1, c, dither, meta, x, origin, stream)
             : decode_walk<T, Zero, false>(data, l, s, g0, g1, c, dither, meta, x, origin, stream);
}

// ---- raw groups: behind the codes, in order ----

template <class T> inline int64_t meta_bytes(const Layout& l) {
  return MetaArray<Real<T>>{nullptr, l.samples * l.groups()}.bytes();
}

// f(first element, count, elements before) of every raw group, in order; returns the elements.
template <class T, class G>
inline int64_t each_raw(const uint8_t* data, const Layout& l, G&& f) {
  const MetaArray<Real<T>> meta{const_cast<uint8_t*>(data), l.samples * l.groups()};
  int64_t count = 0;
  for (int64_t k = 0; k < meta.groups; ++k) {
    if (!meta.is_raw(k)) continue;
    const int64_t g = k % l.groups(), length = l.length(g);
    f(k / l.groups() * l.n + g * l.group, length, count);
    count += length;
  }
  return count;
}

// Whether the raw groups fill the payload exactly to its end.
template <class T> inline bool raw_fits(const uint8_t* data, const Layout& l, int64_t size) {
  const int64_t count = each_raw<T>(data, l, [](int64_t, int64_t, int64_t) {});
  return count * int64_t(sizeof(T)) == size - l.offsets[l.samples];
}

template <class T> inline void restore_raw(const uint8_t* data, const Layout& l, T* out) {
  const uint8_t* from = data + l.offsets[l.samples];
  each_raw<T>(data, l, [&](int64_t first, int64_t length, int64_t done) {
    std::memcpy(out + first, from + done * int64_t(sizeof(T)), size_t(length) * sizeof(T));
  });
}

ACTZIP_END
