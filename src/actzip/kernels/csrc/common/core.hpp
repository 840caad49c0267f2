// What every kernel file shares: element types, the dither hash, threads, status codes; entry.hpp.
//
// Where to read on, each folder after those before it:
//
//   common/      this file; entry.hpp (how Python calls); simd.hpp (blocks of 32 elements, the same
//                functions in simd_avx2, simd_avx512 with simd_x86, and simd_portable); isa.cpp
//   exact/       planes.hpp (codes as bit planes), planes, mask, index, window: what loses nothing
//   group/       meta.hpp, range.hpp (lo and step of a group), block.hpp (32 elements to codes),
//                run.hpp (whole blocks), layout.hpp and walk.cpp (all of a row), group.cpp (entries)
//   dual/        map.hpp (a map and what is left of it), average.hpp, blocks.hpp, dual.cpp;
//                channels.hpp, last.cpp
//   bounded/     format.hpp, quant.hpp, predict.hpp, bits.hpp; encode.hpp, decode.hpp (a chunk);
//                bytes*, wide*, avx2_decode (its usual cases with vectors); bounded.cpp (entries)
//   entropy/     rans.hpp (the coder), avx2, avx512, portable; entropy.cpp (entries)
//   bounded/     squeeze.hpp, histogram.hpp, span*.hpp, rans.hpp, entropy.cpp: the two together
//   fixedpoint/  chunk.hpp, fixedpoint.cpp
//   dithered/    tables.hpp (contexts; frequencies.hpp, tables.cpp), grid.hpp, lanes.hpp, quant.hpp
//                (values to codes), marks.hpp, partition.hpp (codes by context), symbols.hpp,
//                encode.hpp, decode.hpp, dithered.cpp
//
// Each *.cpp is compiled once per instruction set (portable, avx2, avx512), with ACTZIP_ISA
// set to the name of its namespace, and everything lives inside `namespace actzip::ACTZIP_ISA`.
// So no function compiled with AVX can be merged by the linker with its portable twin. For the
// same reason kernels use no std:: templates: those would be shared between the three builds.
// The code is built without floating-point contraction: all builds give the same bytes.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef _OPENMP
#include <omp.h>
#endif

// For the functions that must melt into the loop that calls them: blocks live in registers.
#ifndef ACTZIP_INLINE  // the sanitized builds of tests/native name one that compiles faster
#define ACTZIP_INLINE inline __attribute__((always_inline))
#endif

// The same for a lambda.
#define ACTZIP_LAMBDA __attribute__((always_inline))

// For the functions that are long and called from several places, for many elements at a time.
#define ACTZIP_ONCE __attribute__((noinline))

#define ACTZIP_BEGIN namespace actzip { namespace ACTZIP_ISA {
#define ACTZIP_END } }

extern "C" int actzip_isa_level();  // 0 portable, 1 AVX2, 2 AVX-512 (isa.cpp)

ACTZIP_BEGIN

// ---- status codes, the same numbers as in kernels/native/library.py ----

constexpr int64_t kOk = 0;
constexpr int64_t kDamaged = -1;      // stored bytes that no encoder writes
constexpr int64_t kBadArgument = -2;  // the caller broke the contract of the entry
constexpr int64_t kBadValue = -3;     // an input value that the format does not hold

// ---- element types, the same numbers as in kernels/native/library.py ----

enum Dtype : int64_t { kF32 = 0, kBF16 = 1, kF16 = 2, kF64 = 3, kU8 = 4, kI8 = 5, kI16 = 6,
                       kI32 = 7, kI64 = 8, kU16 = 9, kU32 = 10, kU64 = 11 };

struct bf16 { uint16_t bits; };
struct f16 { uint16_t bits; };

template <class To, class From>
inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast between equal sizes");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <class T> inline T min_of(T a, T b) { return b < a ? b : a; }
template <class T> inline T max_of(T a, T b) { return a < b ? b : a; }
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Unaligned little-endian access: payload bytes have no alignment.
template <class T> inline T load_as(const uint8_t* p) { T v; std::memcpy(&v, p, sizeof v); return v; }
template <class T> inline void store_as(uint8_t* p, T v) { std::memcpy(p, &v, sizeof v); }

inline float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16;
  const uint32_t rest = h & 0x7fff;
  if (rest >= 0x7c00) return bit_cast<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  // 2^112 moves the exponent from half's bias to float's and normalises subnormals exactly.
  return bit_cast<float>(sign | bit_cast<uint32_t>(bit_cast<float>(rest << 13) * 0x1p112f));
}

inline uint16_t float_to_half(float f) {  // round to nearest even
  const uint32_t bits = bit_cast<uint32_t>(f);
  const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
  const uint32_t mag = bits & 0x7fffffff;
  if (mag > 0x7f800000) return uint16_t(sign | 0x7e00);
  if (mag >= 0x477ff000) return uint16_t(sign | 0x7c00);
  if (mag < 0x38800000) {  // below half's smallest normal: let one float addition round
    const float rounded = bit_cast<float>(mag) + 0.5f;
    return uint16_t(sign | (bit_cast<uint32_t>(rounded) - 0x3f000000));
  }
  return uint16_t(sign | ((mag + 0xfff + (mag >> 13 & 1) - 0x38000000) >> 13));
}

inline uint16_t float_to_bf16(float f) {  // round to nearest even
  const uint32_t bits = bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Real<T>: the type in which elements of type T are computed. float for all but double.
template <class T> struct RealOf { using type = float; };
template <> struct RealOf<double> { using type = double; };
template <class T> using Real = typename RealOf<T>::type;

inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline float widen(bf16 x) { return bit_cast<float>(uint32_t(x.bits) << 16); }
inline float widen(f16 x) { return half_to_float(x.bits); }

template <class T> inline T narrow(Real<T> x);
template <> inline float narrow<float>(float x) { return x; }
template <> inline double narrow<double>(double x) { return x; }
template <> inline bf16 narrow<bf16>(float x) { return bf16{float_to_bf16(x)}; }
template <> inline f16 narrow<f16>(float x) { return f16{float_to_half(x)}; }

// Calls f(T{}) with the element type that `dtype` names, for the four floating types.
template <class F>
inline int64_t with_float(int64_t dtype, F&& f) {
  switch (dtype) {
    case kF32: return f(float{});
    case kBF16: return f(bf16{});
    case kF16: return f(f16{});
    case kF64: return f(double{});
    default: return kBadArgument;
  }
}

inline int64_t itemsize(int64_t dtype) {
  switch (dtype) {
    case kU8: case kI8: return 1;
    case kBF16: case kF16: case kI16: case kU16: return 2;
    case kF32: case kI32: case kU32: return 4;
    default: return 8;
  }
}

// ---- the dither hash: (seed, element index) -> v in (-1/2, 1/2) ----
//
// Elements go in blocks of 32 that share 16 words of 32 bits: element i of a block takes the low
// half of word i when i < 16, else the high half of word i - 16. Word w of a stream is a Weyl
// sequence put through a two-round multiply mix (constants of "lowbias32"), keyed twice, so that
// the streams of two seeds are no shifts of each other. v = (s + 1/2) / 2^16 for the half word s
// read as a signed number: 65536 values, symmetric about zero, never zero, exact in float32.

struct Key { uint32_t start, middle; };

inline uint64_t mix64(uint64_t z) {
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

constexpr uint32_t kWeyl = 0x9e3779b9u, kMixA = 0x7feb352du, kMixB = 0x846ca68bu;

// The key of the 2^32 words whose high part is `high`.
inline Key stream_key(uint64_t seed, uint64_t high) {
  const uint64_t k = mix64(mix64(seed + 0x9e3779b97f4a7c15ull) + high * 0xd1342543de82ef95ull);
  return Key{uint32_t(k), uint32_t(k >> 32)};
}

inline uint32_t mix_word(Key key, uint32_t w) {
  uint32_t x = w * kWeyl + key.start;
  x = (x ^ x >> 16) * kMixA + key.middle;
  x = (x ^ x >> 15) * kMixB;
  return x ^ x >> 16;
}

inline float dither_of(int16_t half) { return float(half) * 0x1p-16f + 0x1p-17f; }

// v of one element; for loops use simd.hpp's dither_block.
inline float dither_at(uint64_t seed, int64_t index) {
  const uint64_t word = uint64_t(index) / 32 * 16 + uint64_t(index) % 16;
  const uint32_t x = mix_word(stream_key(seed, word >> 32), uint32_t(word));
  return dither_of(int16_t(index & 16 ? x >> 16 : x));
}

// v of elements [32*block, 32*block + 32). The scalar form; key = stream_key(seed, block >> 28).
inline void dither_block_scalar(Key key, int64_t block, float* v) {
  for (int i = 0; i < 16; ++i) {
    const uint32_t x = mix_word(key, uint32_t(uint64_t(block) * 16) + uint32_t(i));
    v[i] = dither_of(int16_t(x));
    v[i + 16] = dither_of(int16_t(x >> 16));
  }
}

// ---- caches ----

// Whether an output of so many bytes is written past the caches. An ordinary store first reads the
// line that it is going to overwrite, and here it is mostly one of a buffer that was just read by all
// cores, each of which has to give it up: up to three times slower, from a megabyte on, and more than
// what the reader of the output gains from finding some of it in a cache.
inline bool beyond_caches(int64_t bytes) { return bytes > (int64_t(1) << 20); }

// Streaming stores take whole lines.
inline bool can_stream(const void* p) { return reinterpret_cast<uintptr_t>(p) % 64 == 0; }

// ---- numbers of bits, 1 to 8 ----

// A constant; Bits<0>: a number that is known at run time only.
template <int N> struct Bits {
  constexpr explicit Bits(int) {}
  constexpr operator int() const { return N; }
};
template <> struct Bits<0> {
  int n;
  constexpr explicit Bits(int bits) : n(bits) {}
  constexpr operator int() const { return n; }
};

// f(bits as a type): a constant for the widths that are worth a copy of the code that uses it. Each
// costs time to compile. The portable kernels have none where others take their place.
template <class G> ACTZIP_INLINE auto with_bits(int bits, G&& f) {
#ifndef ACTZIP_COMPACT
  switch (bits) {
    case 1: return f(Bits<1>(bits));
    case 2: return f(Bits<2>(bits));
    case 3: return f(Bits<3>(bits));
    case 4: return f(Bits<4>(bits));
    case 8: return f(Bits<8>(bits));
    default: break;
  }
#endif
  return f(Bits<0>(bits));
}

// ---- threads ----

// One copy of f's code, for the loop in a parallel region and the one outside of it: twice as much
// of nearly every kernel is what the compiler would spend its time on.
template <class F>
__attribute__((noinline)) void do_chunk(F& f, int64_t c) { f(c); }

// f(chunk) for chunk in [0, chunks), on `threads` threads of the pool that torch has. What a chunk
// does must depend on its number only. With one thread no parallel region is started: in a forked
// data-loader worker that would hang. Threads take up to 16 chunks at a time: neighbours in memory
// stay with one thread, and its prefetcher; but few enough that the last one to finish is not late.
template <class F>
inline void parallel_for(int64_t chunks, int64_t threads, F&& f) {
#ifdef _OPENMP
  if (threads > 1 && chunks > 1) {
    const int64_t count = min_of(threads, chunks);
    const int64_t grain = max_of<int64_t>(1, min_of<int64_t>(16, chunks / (16 * count)));
#pragma omp parallel for num_threads(int(count)) schedule(dynamic, grain)
    for (int64_t c = 0; c < chunks; ++c) do_chunk(f, c);
    return;
  }
#endif
  (void)threads;
  for (int64_t c = 0; c < chunks; ++c) do_chunk(f, c);
}

// The number of the calling thread in its parallel_for: which scratch it may use.
inline int64_t thread_number() {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

// A counter that chunks of a parallel_for add to.
inline void atomic_add(int64_t* counter, int64_t n) {
  if (n) __atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}
inline void atomic_lower(int64_t* least, int64_t x) {
  int64_t seen = __atomic_load_n(least, __ATOMIC_RELAXED);
  while (x < seen && !__atomic_compare_exchange_n(least, &seen, x, true, __ATOMIC_RELAXED,
                                                  __ATOMIC_RELAXED)) {}
}
inline void atomic_raise(int64_t* most, int64_t x) {
  int64_t seen = __atomic_load_n(most, __ATOMIC_RELAXED);
  while (x > seen && !__atomic_compare_exchange_n(most, &seen, x, true, __ATOMIC_RELAXED,
                                                  __ATOMIC_RELAXED)) {}
}

ACTZIP_END

#include "common/entry.hpp"
