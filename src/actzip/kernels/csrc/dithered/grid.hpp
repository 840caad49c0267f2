// Dithered: what an element is coded with, its channel's numbers and its dither.
#pragma once

#include "bounded/quant.hpp"

ACTZIP_BEGIN
namespace dithered {

using bounded::BLOCK;
using bounded::CHUNK;
using bounded::copy;

constexpr int64_t BLOCKS_PER_CHUNK = CHUNK / BLOCK;

// grid: bounds per channel, of values above the origin; then those of the others, the origins, and
// what values above them are at least, all of which are read with sides only.
struct Spec {
  int64_t n, dtype;
  const uint8_t* grid;
  int64_t channels, inner;
  uint64_t seed;
  bool sides;
  bool given = false;  // tables: blocks with too many extra bits are raw
};

// What an element's channel says, 64 or more of them one after the other.
template <class R>
struct Grid {
  const R *eb, *step, *inv, *inv0;  // inv0: of level 0
  const R *low, *low_step, *low_inv, *low_inv0, *origin, *above;
};

constexpr int FIELDS = 4;        // eb, low, origin, above
constexpr int KEPT_LEVELS = 3;   // more are hardly ever used
constexpr int64_t MOST_KEPT = 8192;

// Where channels follow each other in memory, their numbers do too: as a table that goes on 64
// elements behind its end. Elsewhere most blocks are of one channel, the same as the block before.
template <class R>
struct Grids {
  const Spec& spec;
  R* const table;  // null: not made
  int64_t stride;
  alignas(64) R own[10][BLOCK];
  int level = -1;  // that `own` is filled for, with the channel that all 64 are of
  int64_t channel = -1;

  Grids(const Spec& s, R* room) : spec(s), table(tabled(s) ? room : nullptr), stride(s.channels + BLOCK) {}

  static bool tabled(const Spec& s) { return s.channels > 1 && s.inner == 1 && s.channels <= MOST_KEPT; }
  // Numbers that the table takes.
  static int64_t room(const Spec& s) {
    return tabled(s) ? (FIELDS + 4 * KEPT_LEVELS) * (s.channels + BLOCK) : 0;
  }
  static R field(const Spec& s, int field, int64_t channel) {
    return load_as<R>(s.grid + (field * s.channels + channel) * int64_t(sizeof(R)));
  }
  static void make(const Spec& s, R* table) {
    if (!tabled(s)) return;
    const int64_t n = s.channels + BLOCK;
    for (int f = 0; f < (s.sides ? FIELDS : 1); ++f)
      for (int64_t i = 0; i < n; ++i) table[f * n + i] = field(s, f, i % s.channels);
    for (int f = 0; f < (s.sides ? 2 : 1); ++f)
      for (int level = 0; level < KEPT_LEVELS; ++level) {
        const R scale = R(bounded::SCALE[level]);
        R* const step = table + (FIELDS + 4 * level + 2 * f) * n;
        for (int64_t i = 0; i < n; ++i) step[i] = (table[f * n + i] * 2) * scale;
        for (int64_t i = 0; i < n; ++i) step[n + i] = R(1) / step[i];
      }
  }

  Grid<R> at(int64_t start, int wanted) {
    if (table && wanted < KEPT_LEVELS) {
      const R* const t = table + start % spec.channels;
      const R *const here = t + (FIELDS + 4 * wanted) * stride, *const first = t + FIELDS * stride;
      return {t,          here,              here + stride,     first + stride,     t + stride,
              here + 2 * stride, here + 3 * stride, first + 3 * stride, t + 2 * stride, t + 3 * stride};
    }
    fill(start, wanted);
    return {own[0], own[1], own[2], own[3], own[4], own[5], own[6], own[7], own[8], own[9]};
  }

 private:
  void fill(int64_t start, int wanted) {
    const bool one = spec.channels == 1;
    int64_t next = one ? 0 : start / spec.inner % spec.channels;
    int64_t left = one ? BLOCK : spec.inner - start % spec.inner;
    const bool whole = left >= BLOCK;
    if (whole && level == wanted && channel == next) return;
    level = whole ? wanted : -1;
    channel = next;
    for (int i = 0; i < BLOCK;) {
      const int end = int(min_of<int64_t>(BLOCK, i + left));
      put(0, field(spec, 0, next), i, end);
      if (spec.sides) {
        put(4, field(spec, 1, next), i, end);
        put(8, field(spec, 2, next), i, end);
        put(9, field(spec, 3, next), i, end);
      }
      i = end;
      left = spec.inner;
      if (++next == spec.channels) next = 0;
    }
    for (int f = 0; f <= (spec.sides ? 4 : 0); f += 4) {
      const R scale = R(bounded::SCALE[wanted]), first = R(bounded::SCALE[0]);
      for (int i = 0; i < BLOCK; ++i) own[f + 1][i] = (own[f][i] * 2) * scale;
      for (int i = 0; i < BLOCK; ++i) own[f + 2][i] = R(1) / own[f + 1][i];
      for (int i = 0; i < BLOCK; ++i)
        own[f + 3][i] = wanted == 0 ? own[f + 2][i] : R(1) / ((own[f][i] * 2) * first);
    }
  }
  void put(int row, R value, int begin, int end) {
    for (int i = begin; i < end; ++i) own[row][i] = value;
  }
};

// Dither of the blocks of 64 that follow each other from element `start` on, and its bins.
struct Dither {
  alignas(64) float v[BLOCK];
  alignas(64) uint8_t bin[BLOCK];
  Noise noise;
  Dither(const Spec& spec, int64_t start)
      : noise(stream_key(spec.seed, uint64_t(start / 32) >> 28), start / 32) {}
  ACTZIP_INLINE void next() {
    for (int half = 0; half < BLOCK; half += 32) {
      const Block w = noise.raw();
      store_bytes(bin + half, top_bytes(w.v));
      spill(map(w, [](F a) { return vsub(a, set1(kRawBias)); }), v + half);
    }
  }
  ACTZIP_INLINE void next_bins() {
    for (int half = 0; half < BLOCK; half += 32) store_bytes(bin + half, top_bytes(noise.raw().v));
  }
};

}  // namespace dithered
ACTZIP_END
