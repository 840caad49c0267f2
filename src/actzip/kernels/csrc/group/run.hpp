// Runs: groups of whole blocks, the loops in which nearly all time is spent.
//
// Everything a run needs is passed by value: a store of bytes may alias any object, and the compiler
// would read it again for each block. Several groups make one run: setting up the constants for each
// of them cost a quarter of the time. The run for a coding is chosen once per chunk, by a pointer.
#pragma once

#include "group/block.hpp"

ACTZIP_BEGIN

// factor: 1/step when encoding, step when decoding.
template <class R> struct Pair { R lo, factor; };

struct Run {
  const Pair<float>* each;  // of every group
  int64_t groups, blocks;   // blocks of one group
  bool stream;              // decoded elements go past the caches
  int bits;
  Key key;                  // of all blocks of the run
  int64_t block;            // the first one, for the dither
};

// So many elements are measured, then coded. While they are coded, memory is idle, so the next ones
// are fetched.
constexpr int64_t kStretch = 2048;

template <class B, bool Zero, bool Noisy, class T>
void encode_run(const T* x, Run run, uint8_t* out) {
  const B bits(run.bits);
  const int levels = (1 << bits) - (Zero ? 2 : 1);
  Noise noise(run.key, run.block);
  for (int64_t g = 0; g < run.groups; ++g) {
    const Block lo = spread32(run.each[g].lo), inverse = spread32(run.each[g].factor);
    for (int64_t b = 0; b < run.blocks; ++b, x += 32, out += 4 * bits) {
      for (int64_t k = 0; k < 32; k += 64 / int64_t(sizeof(T))) __builtin_prefetch(x + kStretch + k);
      const Block block = load32(x);
      const Bytes codes = codes32<Zero, Noisy>(block, lo, inverse, noise, levels);
      store_whole(bits, codes, Zero ? nonzero32(block.v) : ~0u, out);
    }
  }
}

// Up to 6 bits the bias of the raw dither goes into the code: the sum is exact, and one step less.
template <class T, bool Zero, bool Subtract, int N>
ACTZIP_INLINE Block decode_whole(Bits<N> bits, const uint8_t* in, const Block& lo, const Block& step,
                                 Noise& noise) {
  constexpr bool fold = Subtract && N > 0 && N <= 6;
  Block q;
  Mask nonzero[kVectors];
  unpack_floats(bits, in, (fold ? kRawBias : 0) - (Zero ? 1 : 0), q.v, nonzero);
  if (Subtract) q = map(q, fold ? noise.raw() : noise.next(), [](F a, F b) { return vsub(a, b); });
  return values32<T, Zero>(q, nonzero, lo, step);
}

template <class B, bool Zero, bool Subtract, class T>
void decode_run(const uint8_t* in, Run run, T* x) {
  const B bits(run.bits);
  Noise noise(run.key, run.block);
  for (int64_t g = 0; g < run.groups; ++g) {
    const Block lo = spread32(run.each[g].lo), step = spread32(run.each[g].factor);
    for (int64_t b = 0; b < run.blocks; ++b, x += 32, in += 4 * bits) {
      const Block block = decode_whole<T, Zero, Subtract>(bits, in, lo, step, noise);
      run.stream ? stream32(x, block) : store32(x, block);
    }
  }
}

// f(blocks before, run) for the pieces of a run that have one key each: nearly always the whole.
template <class G>
ACTZIP_INLINE void each_key(Dither& dither, Run run, G&& f) {
  const int64_t span = int64_t(1) << 28, total = run.groups * run.blocks;
  if (total == 0) return;
  run.key = dither.at(run.block);
  if (run.block / span == (run.block + total - 1) / span) return f(int64_t(0), run);
  for (int64_t done = 0; done < total;) {
    const int64_t at = run.block + done;
    const int64_t count = min_of(span - at % span, run.blocks - done % run.blocks);
    f(done, Run{run.each + done / run.blocks, 1, count, run.stream, run.bits, dither.at(at), at});
    done += count;
  }
}

ACTZIP_END
