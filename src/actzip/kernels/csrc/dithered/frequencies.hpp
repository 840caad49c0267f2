// Frequencies of a context's symbols, and what codes cost. Every number is one that Python computes
// too: sums are of integers, logarithms those of a table, and what is left are single operations of
// float64. For tables.cpp alone.
#pragma once

#include <cmath>
#include <cstring>

#include "dithered/tables.hpp"

namespace actzip {
namespace dithered_tables {
namespace {

constexpr int SCALE = 4096, ABSENT = 255, UNIT = 1024;
constexpr int64_t ONE = int64_t{1} << 40, SPAN = 65536;
constexpr double RARE = 0.1, CALM = 0.01;
constexpr int GROUPS[] = {8, 5, 4, 3, 2};  // and 1
constexpr int64_t EIGHTHS[] = {1099511627776, 1008256608221, 924575386327, 847839367509,
                               777472127994,  712945084849,  653773525390, 599512966123};

// log2 of 1 to 2 in 4096 steps, by a series.
struct Log2Table {
  double at[SCALE + 1];
  Log2Table() {
    for (int i = 0; i <= SCALE; ++i) {
      const double y = 1 + double(i) / SCALE, s = (y - 1) / (y + 1), square = s * s;
      double series = 0;
      for (int k = 19; k > 0; k -= 2) series = series * square + 1.0 / k;
      at[i] = s * series * 2.8853900817779268;
    }
  }
};

double log2_of(double x) {
  static const Log2Table table;
  int exponent;
  const double t = (2 * std::frexp(x, &exponent) - 1) * SCALE;
  const int i = int(t);
  return (exponent - 1) + (table.at[i] + (t - i) * (table.at[i + 1] - table.at[i]));
}

// c log2 c, in units of bits.
int64_t surprise(int64_t c) {
  if (c < 2) return 0;
  return int64_t(std::floor(double(c) * log2_of(double(c)) * UNIT + 0.5));
}

struct Price {
  double price;
  int symbol;
  bool operator<(const Price& o) const {
    return price < o.price || (price == o.price && symbol < o.symbol);
  }
};

void sift_down(Price* heap, int n, int at) {
  const Price moved = heap[at];
  for (int child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && heap[child + 1] < heap[child]) ++child;
    if (!(heap[child] < moved)) break;
    heap[at] = heap[child];
  }
  heap[at] = moved;
}

// entropy_table.normalise: at least 1 for what occurs, at most 4095, sum 4096.
void normalise(const int64_t* counts, uint16_t* found) {
  int there = 0, lone = 0, left = SCALE;
  int64_t total = 0;
  for (int s = 0; s < 256; ++s) {
    total += counts[s];
    if (counts[s]) ++there, lone = s;
  }
  std::memset(found, 0, 256 * sizeof *found);
  if (there <= 1) {
    found[lone] = SCALE - 1, found[lone ^ 1] = 1;
    return;
  }
  for (int s = 0; s < 256; ++s) {
    if (!counts[s]) continue;
    const int64_t share = counts[s] * SCALE / total;
    found[s] = uint16_t(share > 1 ? share : 1);
    left -= found[s];
  }
  const int step = left > 0 ? 1 : -1;
  const auto price = [&](int s) {
    if (step < 0 && found[s] == 1) return Price{HUGE_VAL, s};
    return Price{double(-step * counts[s]) / (found[s] + 0.5 * step), s};
  };
  Price heap[256];
  int n = 0;
  for (int s = 0; s < 256; ++s)
    if (counts[s]) heap[n++] = price(s);
  for (int k = n / 2 - 1; k >= 0; --k) sift_down(heap, n, k);
  for (; left != 0; left -= step) {
    const int s = heap[0].symbol;
    found[s] = uint16_t(found[s] + step);
    heap[0] = price(s);
    sift_down(heap, n, 0);
  }
}

int64_t probability(int weight) { return weight == ABSENT ? 0 : EIGHTHS[weight % 8] >> (weight / 8); }

// Elements of a context are independent: a group is as likely as the product of its codes.
void frequencies(int group, const uint8_t* weights, int length, int escape, uint16_t* found) {
  const int base = base_of(group);
  int64_t total = probability(escape);
  for (int k = 0; k < length; ++k) total += probability(weights[k]);
  double one[256] = {}, likely[256] = {};
  for (int k = 0; k < length; ++k) one[k] = double(probability(weights[k])) / double(total);
  std::memcpy(likely, one, size_t(base) * sizeof *one);
  int size = base;
  for (int j = 1; j < group; ++j) {
    for (int a = base - 1; a >= 0; --a)
      for (int k = 0; k < size; ++k) likely[a * size + k] = one[a] * likely[k];
    size *= base;
  }
  int64_t kept[256] = {}, sum = 0;
  for (int k = 0; k < (size < ESCAPE ? size : ESCAPE); ++k)
    sum += kept[k] = likely[k] * SCALE < RARE ? 0 : int64_t(likely[k] * double(ONE));
  kept[ESCAPE] = ONE - sum > 1 ? ONE - sum : 1;
  normalise(kept, found);
}

}  // namespace
}  // namespace dithered_tables
}  // namespace actzip
