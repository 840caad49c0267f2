// The group code over chunks of groups: what Group and Dual share; the walks are in walk.cpp.
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
template <class T>
void encode_groups(const T* x, int64_t origin, const Layout& l, int64_t s, int64_t g0, int64_t g1,
                   const Coding& c, Dither& dither, const MetaArray<Real<T>>& meta, uint8_t* data);

// Elements of the groups [g0, g1) of row s into x; element i goes to x[i - origin].
template <class T>
void decode_groups(const uint8_t* data, const Layout& l, int64_t s, int64_t g0, int64_t g1,
                   const Coding& c, Dither& dither, const MetaArray<Real<T>>& meta, T* x,
                   int64_t origin, bool stream = false);

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
