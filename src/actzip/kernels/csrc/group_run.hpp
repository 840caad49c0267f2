// Runs: the whole blocks of one group, the loop in which nearly all time is spent.
//
// Everything a run needs is passed by value and the number of bits is a constant: a store of bytes
// may alias any object, and the compiler would read it again for each block.
#pragma once

#include "group_block.hpp"

ACTZIP_BEGIN

struct Run {
  float lo, factor;  // factor: 1/step when encoding, step when decoding
  Key key;           // of all blocks of the run
  int64_t block, blocks;
};

template <int Bits, bool Zero, bool Noisy, class T>
inline void encode_run(const T* x, Run run, uint8_t* out) {
  constexpr int levels = (1 << Bits) - (Zero ? 2 : 1);
  const Block lo = spread32(run.lo), inverse = spread32(run.factor);
  for (int64_t b = 0; b < run.blocks; ++b)
    encode32<Zero, Noisy>(load32(x + 32 * b), lo, inverse, run.key, run.block + b, Bits, levels, 32,
                          out + 4 * Bits * b);
}

template <int Bits, bool Zero, bool Subtract, class T>
inline void decode_run(const uint8_t* in, Run run, T* x) {
  const Block lo = spread32(run.lo), step = spread32(run.factor);
  for (int64_t b = 0; b < run.blocks; ++b)
    store32(x + 32 * b, decode32<T, Zero, Subtract>(in + 4 * Bits * b, lo, step, run.key,
                                                    run.block + b, Bits, 32));
}

template <bool Zero, bool Noisy, class T>
inline void encode_run(int bits, const T* x, const Run& run, uint8_t* out) {
  switch (bits) {
    case 1: return encode_run<1, Zero, Noisy>(x, run, out);
    case 2: return encode_run<2, Zero, Noisy>(x, run, out);
    case 3: return encode_run<3, Zero, Noisy>(x, run, out);
    case 4: return encode_run<4, Zero, Noisy>(x, run, out);
    case 5: return encode_run<5, Zero, Noisy>(x, run, out);
    case 6: return encode_run<6, Zero, Noisy>(x, run, out);
    case 7: return encode_run<7, Zero, Noisy>(x, run, out);
    default: return encode_run<8, Zero, Noisy>(x, run, out);
  }
}

template <bool Zero, bool Subtract, class T>
inline void decode_run(int bits, const uint8_t* in, const Run& run, T* x) {
  switch (bits) {
    case 1: return decode_run<1, Zero, Subtract>(in, run, x);
    case 2: return decode_run<2, Zero, Subtract>(in, run, x);
    case 3: return decode_run<3, Zero, Subtract>(in, run, x);
    case 4: return decode_run<4, Zero, Subtract>(in, run, x);
    case 5: return decode_run<5, Zero, Subtract>(in, run, x);
    case 6: return decode_run<6, Zero, Subtract>(in, run, x);
    case 7: return decode_run<7, Zero, Subtract>(in, run, x);
    default: return decode_run<8, Zero, Subtract>(in, run, x);
  }
}

// f(first block, run) for the pieces of [block, block + blocks) that have one key each.
template <class G>
ACTZIP_INLINE void each_key(Dither& dither, float lo, float factor, int64_t block, int64_t blocks, G&& f) {
  for (int64_t done = 0; done < blocks;) {
    const int64_t left = (int64_t(1) << 28) - ((block + done) & ((int64_t(1) << 28) - 1));
    const int64_t count = min_of(left, blocks - done);
    f(done, Run{lo, factor, dither.at(block + done), block + done, count});
    done += count;
  }
}

ACTZIP_END
