// Groups of a row to codes and back: runs of whole blocks, and the blocks that groups share.
#include "group/code.hpp"

ACTZIP_BEGIN

// f(constant) for a flag.
template <bool On> struct Flag { static constexpr bool value = On; };
template <class G> inline auto with_flag(bool on, G&& f) { return on ? f(Flag<true>{}) : f(Flag<false>{}); }

// The run for a coding. Without dither, which is rare, the number of bits is no constant.
template <class T> using EncodeRun = void (*)(const T*, Run, uint8_t*);
template <class T> using DecodeRun = void (*)(const uint8_t*, Run, T*);

template <class T> inline EncodeRun<T> encode_run_of(const Coding& c) {
  return with_flag(c.zero, [&](auto zero) -> EncodeRun<T> {
    constexpr bool Zero = decltype(zero)::value;
    if (!c.noisy) return encode_run<Bits<0>, Zero, false, T>;
    return with_bits(c.bits, [](auto bits) -> EncodeRun<T> { return encode_run<decltype(bits), Zero, true, T>; });
  });
}
template <class T> inline DecodeRun<T> decode_run_of(const Coding& c) {
  return with_flag(c.zero, [&](auto zero) {
    return with_flag(c.subtract, [&](auto subtract) {
      return with_bits(c.bits, [](auto bits) -> DecodeRun<T> {
        return decode_run<decltype(bits), decltype(zero)::value, decltype(subtract)::value, T>;
      });
    });
  });
}

// One block of 32 elements with a lo and a factor each.
template <class T>
ACTZIP_INLINE void encode_block(const T* x, int64_t m, const Block& lo, const Block& inverse, Key key, int64_t b,
                  const Coding& c, uint8_t* out) {
  const Block block = take32(x, m);
  with_flag(c.zero, [&](auto zero) {
    with_flag(c.noisy, [&](auto noisy) {
      encode32<decltype(zero)::value, decltype(noisy)::value>(block, lo, inverse, key, b, c.bits,
                                                              c.levels(), m, out);
    });
  });
}
ACTZIP_INLINE void encode_block(const double* x, int64_t m, const Wide<double>& lo, const Wide<double>& inverse,
                  Key key, int64_t b, const Coding& c, uint8_t* out) {
  encode32(take32(x, m), lo, inverse, key, b, c, m, out);
}

template <class T>
ACTZIP_INLINE void decode_block(const uint8_t* in, int64_t m, const Block& lo, const Block& step, Key key, int64_t b,
                  const Coding& c, T* x) {
  with_flag(c.zero, [&](auto zero) {
    with_flag(c.subtract, [&](auto subtract) {
      give32(x, decode32<T, decltype(zero)::value, decltype(subtract)::value>(in, lo, step, key, b, c.bits, m), m);
    });
  });
}
ACTZIP_INLINE void decode_block(const uint8_t* in, int64_t m, const Wide<double>& lo, const Wide<double>& step, Key key,
                  int64_t b, const Coding& c, double* x) {
  give32(x, decode32(in, lo, step, key, b, c, m), m);
}

template <class T>
void encode_groups(const T* x, int64_t origin, const Layout& l, int64_t s, int64_t g0, int64_t g1,
                   const Coding& c, Dither& dither, const MetaArray<Real<T>>& meta, uint8_t* data) {
  using R = Real<T>;
  uint8_t* codes = data + l.offsets[s];
  const int64_t first_block = s * l.rows32();
  const auto value = [&](int64_t g) {
    const Meta<R> m = meta.get(s * l.groups() + g);
    return Pair<R>{m.lo, reciprocal(m.step)};
  };
  const auto block = [&](int64_t i, int64_t m, const auto& lo, const auto& inverse) {
    const int64_t b = first_block + (i >> 5);
    encode_block(x + (i - origin), m, lo, inverse, dither.at(b), b, c, codes + (i >> 3) * c.bits);
  };
  if constexpr (sizeof(R) == 4) {
    const EncodeRun<T> code = encode_run_of<T>(c);
    walk<R>(l, g0, g1, value, [&](int64_t i, int64_t groups, int64_t blocks, const Pair<R>* each) {
      each_key(dither, Run{each, groups, blocks, false, c.bits, Key{}, first_block + (i >> 5)},
               [&](int64_t done, const Run& r) {
        code(x + (i - origin) + 32 * done, r, codes + ((i >> 3) + 4 * done) * c.bits);
      });
    }, block);
  } else {
    walk<R>(l, g0, g1, value, [&](int64_t i, int64_t groups, int64_t blocks, const Pair<R>* each) {
      for (int64_t b = 0; b < groups * blocks; ++b)
        block(i + 32 * b, int64_t(32), spread<R>(each[b / blocks].lo), spread<R>(each[b / blocks].factor));
    }, block);
  }
}

template <class T>
void decode_groups(const uint8_t* data, const Layout& l, int64_t s, int64_t g0, int64_t g1,
                   const Coding& c, Dither& dither, const MetaArray<Real<T>>& meta, T* x,
                   int64_t origin, bool stream) {
  using R = Real<T>;
  const uint8_t* codes = data + l.offsets[s];
  const int64_t first_block = s * l.rows32();
  const auto value = [&](int64_t g) {
    const Meta<R> m = meta.get(s * l.groups() + g);
    return Pair<R>{m.lo, m.step};
  };
  const auto block = [&](int64_t i, int64_t m, const auto& lo, const auto& step) {
    const int64_t b = first_block + (i >> 5);
    decode_block(codes + (i >> 3) * c.bits, m, lo, step, dither.at(b), b, c, x + (i - origin));
  };
  if constexpr (sizeof(R) == 4) {
    const DecodeRun<T> code = decode_run_of<T>(c);
    walk<R>(l, g0, g1, value, [&](int64_t i, int64_t groups, int64_t blocks, const Pair<R>* each) {
      each_key(dither, Run{each, groups, blocks, stream, c.bits, Key{}, first_block + (i >> 5)},
               [&](int64_t done, const Run& r) {
        code(codes + ((i >> 3) + 4 * done) * c.bits, r, x + (i - origin) + 32 * done);
      });
    }, block);
  } else {
    walk<R>(l, g0, g1, value, [&](int64_t i, int64_t groups, int64_t blocks, const Pair<R>* each) {
      for (int64_t b = 0; b < groups * blocks; ++b)
        block(i + 32 * b, int64_t(32), spread<R>(each[b / blocks].lo), spread<R>(each[b / blocks].factor));
    }, block);
  }
}

#define ACTZIP_GROUPS_OF(T)                                                                          \
  template void encode_groups(const T*, int64_t, const Layout&, int64_t, int64_t, int64_t,           \
                              const Coding&, Dither&, const MetaArray<Real<T>>&, uint8_t*);          \
  template void decode_groups(const uint8_t*, const Layout&, int64_t, int64_t, int64_t,              \
                              const Coding&, Dither&, const MetaArray<Real<T>>&, T*, int64_t, bool);
ACTZIP_GROUPS_OF(float)
ACTZIP_GROUPS_OF(bf16)
ACTZIP_GROUPS_OF(f16)
ACTZIP_GROUPS_OF(double)

ACTZIP_END
