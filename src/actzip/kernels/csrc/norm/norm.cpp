// The results of norms, made again from their inputs and moments in one pass.
//
// One rounding after each product and each sum, in single precision (double for double), and one at
// the end: as kernels/reference/norm.py does with whole tensors.
#include "common/core.hpp"

ACTZIP_BEGIN

namespace norm {

constexpr int64_t STRETCH = 1 << 14;  // elements that a thread takes at once
constexpr int64_t LINE = 512;  // fewer channels stand in the table several times: loops are long

// What innermost channels need, for elements that follow each other in memory.
template <class R> struct Table {
  R scale[LINE], shift[LINE], origin[LINE], flip[LINE];
};

// Zero on the side of the origin on which the result is negative, at least `tiny` on the other.
template <class R> inline R rectified(R x, R y, R origin, R flip, R tiny) {
  const bool off = (x <= origin) != (flip != R(0));
  const R above = y < tiny ? tiny : y;
  return off ? R(0) : above;
}

template <class T> inline Real<T> tiny_of();
template <> inline float tiny_of<float>() { return 1.17549435e-38f; }
template <> inline float tiny_of<bf16>() { return 1.17549435e-38f; }
template <> inline float tiny_of<f16>() { return 6.103515625e-05f; }
template <> inline double tiny_of<double>() { return 2.2250738585072014e-308; }

// Elements that share a channel.
template <class T>
inline void run(const T* __restrict x, T* __restrict out, int64_t n, Real<T> scale, Real<T> shift) {
  for (int64_t i = 0; i < n; ++i) out[i] = narrow<T>(widen(x[i]) * scale + shift);
}

template <class T>
inline void run(const T* __restrict x, T* __restrict out, int64_t n, Real<T> scale, Real<T> shift,
                Real<T> origin, Real<T> flip) {
  const Real<T> tiny = tiny_of<T>();
  for (int64_t i = 0; i < n; ++i) {
    const Real<T> v = widen(x[i]);
    out[i] = narrow<T>(rectified<Real<T>>(v, v * scale + shift, origin, flip, tiny));
  }
}

// Elements of channels that follow each other.
template <class T, class R>
inline void step(const T* __restrict x, T* __restrict out, int64_t n, const R* __restrict scale,
                 const R* __restrict shift) {
  for (int64_t i = 0; i < n; ++i) out[i] = narrow<T>(widen(x[i]) * scale[i] + shift[i]);
}

template <class T, class R>
inline void step(const T* __restrict x, T* __restrict out, int64_t n, const R* __restrict scale,
                 const R* __restrict shift, const R* __restrict origin, const R* __restrict flip) {
  const R tiny = tiny_of<T>();
  for (int64_t i = 0; i < n; ++i) {
    const R v = widen(x[i]);
    out[i] = narrow<T>(rectified<R>(v, v * scale[i] + shift[i], origin[i], flip[i], tiny));
  }
}

}  // namespace norm

// out = x·scale + shift; element i is of channel i / inner % channels. With origins, of a ReLU's
// result: `flip` where the scale is negative.
int64_t norm_channels(Buffer<const void> x, int64_t dtype, int64_t n, Buffer<const void> scale,
                      Buffer<const void> shift, int64_t channels, int64_t inner, int64_t relu,
                      Buffer<const void> origin, Buffer<const void> flip, Buffer<void> out,
                      int64_t threads) {
  using namespace norm;
  return with_float(dtype, [&](auto zero) -> int64_t {
    using T = decltype(zero);
    using R = Real<T>;
    if (channels < 1 || inner < 1 || !x.holds(n, sizeof(T)) || !out.holds(n, sizeof(T)) ||
        !scale.holds(channels, sizeof(R)) || !shift.holds(channels, sizeof(R)))
      return kBadArgument;
    if (relu && (!origin.holds(channels, sizeof(R)) || !flip.holds(channels, sizeof(R))))
      return kBadArgument;
    const T* const from = x.template as<const T>();
    T* const to = out.template as<T>();
    const R *a = scale.template as<const R>(), *b = shift.template as<const R>(),
            *o = origin.template as<const R>(), *f = flip.template as<const R>();
    Table<R> table;
    if (inner == 1 && channels < LINE) {
      const int64_t once = channels;
      channels *= LINE / once;
      for (int64_t c = 0; c < channels; ++c) {
        table.scale[c] = a[c % once], table.shift[c] = b[c % once];
        if (relu) table.origin[c] = o[c % once], table.flip[c] = f[c % once];
      }
      a = table.scale, b = table.shift, o = table.origin, f = table.flip;
    }
    parallel_for(ceil_div(n, STRETCH), threads, [&](int64_t k) {
      const int64_t end = min_of(n, (k + 1) * STRETCH);
      for (int64_t i = k * STRETCH; i < end;) {
        const int64_t c = i / inner % channels;
        int64_t many;
        if (inner > 1) {
          many = min_of(end - i, inner - i % inner);
          if (relu) run(from + i, to + i, many, a[c], b[c], o[c], f[c]);
          else run(from + i, to + i, many, a[c], b[c]);
        } else {
          many = min_of(end - i, channels - c);
          if (relu) step(from + i, to + i, many, a + c, b + c, o + c, f + c);
          else step(from + i, to + i, many, a + c, b + c);
        }
        i += many;
      }
    });
    return kOk;
  });
}

// out = (x - mean[r])·rstd[r]·weight[c] + bias[c]; what a norm does not have has no bytes.
int64_t norm_rows(Buffer<const void> x, int64_t dtype, int64_t rows, int64_t columns,
                  Buffer<const void> mean, Buffer<const void> rstd, Buffer<const void> weight,
                  Buffer<const void> bias, Buffer<void> out, int64_t threads) {
  return with_float(dtype, [&](auto zero) -> int64_t {
    using T = decltype(zero);
    using R = Real<T>;
    if (rows < 0 || columns < 1 || rows > (int64_t(1) << 60) / columns) return kBadArgument;
    const int64_t n = rows * columns;
    if (!x.holds(n, sizeof(T)) || !out.holds(n, sizeof(T)) || !rstd.holds(rows, sizeof(R)) ||
        (mean.bytes && !mean.holds(rows, sizeof(R))) ||
        (weight.bytes && !weight.holds(columns, sizeof(R))) ||
        (bias.bytes && !bias.holds(columns, sizeof(R))))
      return kBadArgument;
    const R *const m = mean.bytes ? mean.template as<const R>() : nullptr,
            *const s = rstd.template as<const R>(),
            *const w = weight.bytes ? weight.template as<const R>() : nullptr,
            *const b = bias.bytes ? bias.template as<const R>() : nullptr;
    const int64_t each = 1 + norm::STRETCH / columns;  // rows that a thread takes at once
    parallel_for(ceil_div(rows, each), threads, [&](int64_t k) {
      for (int64_t r = k * each; r < min_of(rows, (k + 1) * each); ++r) {
        const T* const from = x.template as<const T>() + r * columns;
        T* const to = out.template as<T>() + r * columns;
        const R less = m ? m[r] : R(0), scale = s[r];
        if (w && b)
          for (int64_t c = 0; c < columns; ++c)
            to[c] = narrow<T>((widen(from[c]) - less) * scale * w[c] + b[c]);
        else if (w)
          for (int64_t c = 0; c < columns; ++c) to[c] = narrow<T>((widen(from[c]) - less) * scale * w[c]);
        else
          for (int64_t c = 0; c < columns; ++c) {
            const R y = (widen(from[c]) - less) * scale;
            to[c] = narrow<T>(b ? y + b[c] : y);
          }
      }
    });
    return kOk;
  });
}

ACTZIP_END

ACTZIP_ENTRY(norm_channels)
ACTZIP_ENTRY(norm_rows)
