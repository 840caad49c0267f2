// Window: max-pool indices as places in their windows, one byte each; Index then packs them.
//
// geometry: six rows of three numbers: pooled size, kernel, stride, padding, dilation, map size;
// then how many maps lie side by side in memory (1, or the channels of channels_last).
#include "common/core.hpp"

ACTZIP_BEGIN

constexpr int kWindowBlock = 64;

struct WindowShape {
  const int64_t *pooled, *kernel, *stride, *padding, *dilation, *size;
  int64_t beside;
  explicit WindowShape(const int64_t* g)
      : pooled(g), kernel(g + 3), stride(g + 6), padding(g + 9), dilation(g + 12), size(g + 15),
        beside(g[18]) {}
  int64_t corner(int d, int64_t o) const { return o * stride[d] - padding[d]; }
  int64_t row() const { return pooled[2] * beside; }
};

// Whether n values are whole maps of this geometry, and all its numbers are of use.
inline bool fits(Buffer<const int64_t> geometry, int64_t n) {
  if (n < 0 || !geometry.holds(19, 8)) return false;
  for (int k = 0; k < 19; ++k)
    if (geometry[k] < (k < 3 || (k >= 9 && k < 12) ? 0 : 1) || geometry[k] > INT32_MAX) return false;
  if (n == 0) return true;
  int64_t values = 1;
  const int64_t sides[4] = {geometry[0], geometry[1], geometry[2], geometry[18]};
  for (int64_t side : sides) {
    if (side == 0 || values > n / side) return false;
    values *= side;
  }
  return n % values == 0;
}

// f(first, z, y) for each row of pooled values, along the last dimension and the maps side by side.
template <class F>
inline void for_rows(const WindowShape& w, int64_t n, int64_t threads, F&& f) {
  const int64_t rows = w.row() > 0 ? n / w.row() : 0;
  const int64_t per_chunk = max_of<int64_t>(1, (1 << 15) / max_of<int64_t>(1, w.row()));
  parallel_for(ceil_div(rows, per_chunk), threads, [&](int64_t c) {
    for (int64_t r = c * per_chunk; r < min_of(rows, (c + 1) * per_chunk); ++r)
      f(r * w.row(), r / w.pooled[1] % w.pooled[0], r % w.pooled[1]);
  });
}

// Whether every coordinate that is met below, times what lies behind it, fits into 32 bits.
inline bool is_small(const WindowShape& w) {
  double unit = 1;
  for (int d = 2; d >= 0; --d) {
    const double reach = double(w.pooled[d]) * double(w.stride[d]) + double(w.padding[d]) +
                         double(w.kernel[d]) * double(w.dilation[d]) + double(w.size[d]);
    if (reach * unit > INT32_MAX) return false;
    unit *= double(w.size[d]);
  }
  return true;
}

// The steps from `corner` to at / unit in each of n places, by counting the steps that are not
// beyond it (no division); what is left of `at` stays there. Sets `wrong` where it is no step.
inline void take_steps(const WindowShape& w, int d, const int32_t* corner, int32_t unit,
                       int32_t* at, int32_t* place, int32_t* wrong, int n) {
  const int32_t dilation = int32_t(w.dilation[d]), kernel = int32_t(w.kernel[d]);
  int32_t step[kWindowBlock] = {};
  for (int32_t k = 1; k < kernel; ++k)
    for (int i = 0; i < n; ++i) step[i] += at[i] >= (corner[i] + k * dilation) * unit;
  for (int i = 0; i < n; ++i) {
    const int32_t coordinate = corner[i] + step[i] * dilation;
    at[i] -= coordinate * unit;
    wrong[i] |= (coordinate < 0) | (at[i] < 0) | (at[i] >= unit);
    place[i] = place[i] * kernel + step[i];
  }
}

// The places of n indices whose windows start at x, x + dx, ...; how many lie in no window.
inline int64_t encode_run(const WindowShape& w, const int64_t* indices, int64_t n, int64_t z,
                          int64_t y, int64_t x, int64_t dx, uint8_t* places) {
  const int64_t total = w.size[0] * w.size[1] * w.size[2];
  const int32_t plane = int32_t(w.size[1] * w.size[2]), width = int32_t(w.size[2]);
  const int32_t cz = int32_t(w.corner(0, z)), cy = int32_t(w.corner(1, y));
  int64_t bad = 0;
  for (int64_t done = 0; done < n; done += kWindowBlock) {
    const int m = int(min_of<int64_t>(kWindowBlock, n - done));
    int32_t at[kWindowBlock], place[kWindowBlock] = {}, wrong[kWindowBlock];
    int32_t corner[3][kWindowBlock];
    for (int i = 0; i < m; ++i) {
      const int64_t index = indices[done + i];
      wrong[i] = uint64_t(index) >= uint64_t(total);
      at[i] = wrong[i] ? 0 : int32_t(index);
      corner[0][i] = cz, corner[1][i] = cy;
      corner[2][i] = int32_t(w.corner(2, x + (done + i) * dx));
    }
    take_steps(w, 0, corner[0], plane, at, place, wrong, m);
    take_steps(w, 1, corner[1], width, at, place, wrong, m);
    take_steps(w, 2, corner[2], 1, at, place, wrong, m);
    for (int i = 0; i < m; ++i) {
      places[done + i] = uint8_t(place[i]);
      bad += wrong[i];
    }
  }
  return bad;
}

int64_t window_encode(Buffer<const int64_t> indices, int64_t n, Buffer<const int64_t> geometry,
                      Buffer<uint8_t> places, int64_t threads) {
  if (!fits(geometry, n) || !indices.holds(n, 8) || !places.holds(n, 1)) return kBadArgument;
  const WindowShape w(geometry);
  if (!is_small(w)) return kBadValue;
  int64_t bad = 0;
  for_rows(w, n, threads, [&](int64_t first, int64_t z, int64_t y) {
    int64_t wrong = 0;
    if (w.beside == 1) {
      wrong = encode_run(w, indices + first, w.pooled[2], z, y, 0, 1, places + first);
    } else {
      for (int64_t x = 0; x < w.pooled[2]; ++x, first += w.beside)
        wrong += encode_run(w, indices + first, w.beside, z, y, x, 0, places + first);
    }
    if (wrong) atomic_add(&bad, wrong);
  });
  return bad ? kBadValue : kOk;
}

int64_t window_decode(Buffer<const uint8_t> places, int64_t n, Buffer<const int64_t> geometry,
                      Buffer<int64_t> indices, int64_t threads) {
  if (!fits(geometry, n) || !indices.holds(n, 8) || !places.holds(n, 1)) return kBadArgument;
  const WindowShape w(geometry);
  if (!is_small(w)) return kDamaged;
  const int64_t count = min_of<int64_t>(256, w.kernel[0] * w.kernel[1] * w.kernel[2]);
  int64_t bad = 0;
  for_rows(w, n, threads, [&](int64_t first, int64_t z, int64_t y) {
    int64_t start[256] = {}, across[256];  // where a place's row starts in the map; its column there
    for (int64_t& column : across) column = INT32_MIN;  // left of every map
    for (int64_t p = 0; p < count; ++p) {
      const int64_t az = w.corner(0, z) + p / (w.kernel[1] * w.kernel[2]) * w.dilation[0];
      const int64_t ay = w.corner(1, y) + p / w.kernel[2] % w.kernel[1] * w.dilation[1];
      if (uint64_t(az) >= uint64_t(w.size[0]) || uint64_t(ay) >= uint64_t(w.size[1])) continue;
      start[p] = (az * w.size[1] + ay) * w.size[2];
      across[p] = p % w.kernel[2] * w.dilation[2];
    }
    int64_t wrong = 0, i = first;
    for (int64_t x = 0; x < w.pooled[2]; ++x) {
      const int64_t corner = w.corner(2, x);
      for (int64_t b = 0; b < w.beside; ++b, ++i) {
        const int64_t column = corner + across[places[i]];
        wrong += uint64_t(column) >= uint64_t(w.size[2]);
        indices[i] = start[places[i]] + column;
      }
    }
    if (wrong) atomic_add(&bad, wrong);
  });
  return bad ? kDamaged : kOk;
}

ACTZIP_END

ACTZIP_ENTRY(window_encode)
ACTZIP_ENTRY(window_decode)
