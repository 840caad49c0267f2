// Window: max-pool indices as places in their windows, one byte each; Index then packs them.
//
// geometry: six rows of three numbers: pooled size, kernel, stride, padding, dilation, map size.
#include "core.hpp"

ACTZIP_BEGIN

struct WindowShape {
  const int64_t *pooled, *kernel, *stride, *padding, *dilation, *size;
  explicit WindowShape(const int64_t* g)
      : pooled(g), kernel(g + 3), stride(g + 6), padding(g + 9), dilation(g + 12), size(g + 15) {}
  int64_t corner(int d, int64_t o) const { return o * stride[d] - padding[d]; }
};

// The number of steps of dilation[d] from the window's corner to `at`, or -1.
inline int64_t steps_to(const WindowShape& w, int d, int64_t corner, int64_t at) {
  const int64_t offset = at - corner;
  if (offset < 0) return -1;
  const int64_t step = w.dilation[d] == 1 ? offset : offset / w.dilation[d];
  return step < w.kernel[d] && step * w.dilation[d] == offset ? step : -1;
}

// f(row, z, y) for each row of pooled values along the last dimension.
template <class F>
inline void for_rows(const WindowShape& w, int64_t n, int64_t threads, F&& f) {
  const int64_t rows = w.pooled[2] > 0 ? n / w.pooled[2] : 0;
  const int64_t per_chunk = max_of<int64_t>(1, (1 << 15) / max_of<int64_t>(1, w.pooled[2]));
  parallel_for(ceil_div(rows, per_chunk), threads, [&](int64_t c) {
    for (int64_t r = c * per_chunk; r < min_of(rows, (c + 1) * per_chunk); ++r)
      f(r, r / w.pooled[1] % w.pooled[0], r % w.pooled[1]);
  });
}

int64_t window_encode(const int64_t* indices, int64_t n, const int64_t* geometry, uint8_t* places,
                      int64_t threads) {
  const WindowShape w(geometry);
  const int64_t total = w.size[0] * w.size[1] * w.size[2];
  if (total > INT32_MAX) return kBadValue;  // 32-bit division below; no map is that large
  const uint32_t plane = uint32_t(w.size[1] * w.size[2]), width = uint32_t(w.size[2]);
  int64_t bad = 0;
  for_rows(w, n, threads, [&](int64_t row, int64_t z, int64_t y) {
    int64_t wrong = 0;
    for (int64_t x = 0; x < w.pooled[2]; ++x) {
      const int64_t i = row * w.pooled[2] + x;
      if (uint64_t(indices[i]) >= uint64_t(total)) { ++wrong; continue; }
      const uint32_t at = uint32_t(indices[i]);
      const uint32_t az = at / plane, rest = at - az * plane, ay = rest / width;
      const int64_t kz = steps_to(w, 0, w.corner(0, z), int64_t(az));
      const int64_t ky = steps_to(w, 1, w.corner(1, y), int64_t(ay));
      const int64_t kx = steps_to(w, 2, w.corner(2, x), int64_t(rest - ay * width));
      wrong += kz < 0 || ky < 0 || kx < 0;
      places[i] = uint8_t((kz * w.kernel[1] + ky) * w.kernel[2] + kx);
    }
    atomic_add(&bad, wrong);
  });
  return bad ? kBadValue : kOk;
}

int64_t window_decode(const uint8_t* places, int64_t n, const int64_t* geometry, int64_t* indices,
                      int64_t threads) {
  const WindowShape w(geometry);
  const uint32_t count = uint32_t(w.kernel[0] * w.kernel[1] * w.kernel[2]);
  const uint32_t plane = uint32_t(w.kernel[1] * w.kernel[2]), width = uint32_t(w.kernel[2]);
  int64_t bad = 0;
  for_rows(w, n, threads, [&](int64_t row, int64_t z, int64_t y) {
    int64_t wrong = 0;
    for (int64_t x = 0; x < w.pooled[2]; ++x) {
      const int64_t i = row * w.pooled[2] + x;
      const uint32_t place = places[i];
      const uint32_t rest = place % plane;
      const int64_t az = w.corner(0, z) + int64_t(place / plane) * w.dilation[0];
      const int64_t ay = w.corner(1, y) + int64_t(rest / width) * w.dilation[1];
      const int64_t ax = w.corner(2, x) + int64_t(rest % width) * w.dilation[2];
      wrong += place >= count || uint64_t(az) >= uint64_t(w.size[0]) ||
               uint64_t(ay) >= uint64_t(w.size[1]) || uint64_t(ax) >= uint64_t(w.size[2]);
      indices[i] = (az * w.size[1] + ay) * w.size[2] + ax;
    }
    atomic_add(&bad, wrong);
  });
  return bad ? kDamaged : kOk;
}

ACTZIP_END

ACTZIP_ENTRY(window_encode,
             (const int64_t* indices, int64_t n, const int64_t* geometry, uint8_t* places,
              int64_t threads),
             (indices, n, geometry, places, threads))
ACTZIP_ENTRY(window_decode,
             (const uint8_t* places, int64_t n, const int64_t* geometry, int64_t* indices,
              int64_t threads),
             (places, n, geometry, indices, threads))
