// See tables.hpp.
#ifdef ACTZIP_DISPATCH

#include "dithered/frequencies.hpp"

namespace actzip {
namespace dithered_tables {
namespace {

// Counts of the 64 codes of a range of bins, and what it costs to code them.
struct Part {
  int64_t count[COUNTED], total, units, table, codes;
  void see() {
    int last = 0;
    int64_t sum = 0, surprises = 0;
    codes = 0;
    for (int k = 0; k < COUNTED; ++k) {
      if (!count[k]) continue;
      sum += count[k], surprises += surprise(count[k]), ++codes, last = k + 1;
    }
    total = sum, units = surprise(sum) - surprises, table = last + 4;
  }
};

double price_of(double share, int64_t units, int64_t table, int64_t codes) {
  return share * (double(units) / UNIT) + (8.0 * double(table) + (share - 1) * 0.72 * double(codes));
}
double price_of(double share, const Part& p) { return price_of(share, p.units, p.table, p.codes); }

struct Plan {
  bool folded;
  int count;
  int edge[CONTEXTS + 1];  // from 0 to the last bin
};

// Plan k of 13: no edges; equal ranges, or equal ones next to |v| = 1/2 and one for all else.
Plan plan_of(bool folded, int k) {
  constexpr int half = BINS / 2;
  Plan p{folded, 0, {}};
  p.edge[p.count++] = 0;
  const int zoom = k ? 1 << (k - 1) / 3 : 1, parts = k ? 2 << (k - 1) % 3 : 1;
  if (!folded) {
    for (int j = 1; j < parts; ++j) p.edge[p.count++] = j * half / (zoom * parts);
    p.edge[p.count++] = half;
  }
  for (int j = parts - 1; j > 0; --j)
    p.edge[p.count++] = (folded ? half : BINS) - j * half / (zoom * parts);
  p.edge[p.count] = folded ? half : BINS;
  return p;
}

using Sums = int64_t[BINS + 1][COUNTED];  // of all bins before each

void fill_part(const Sums& below, const Plan& p, int k, Part& part) {
  for (int c = 0; c < COUNTED; ++c)
    part.count[c] = below[p.edge[k + 1]][c] - below[p.edge[k]][c];
  part.see();
}

int group_of(const Part& p) {
  int64_t above[16], rest = p.total;
  for (int k = 0; k < 16; ++k) above[k] = rest -= p.count[k];
  for (int group : GROUPS) {
    if (group * p.units > 5 * UNIT * p.total) continue;
    if (group == 8 && double(above[0]) > CALM * double(p.total)) continue;
    if (100000 * above[base_of(group) - 1] <= 1000 * above[0] + p.total) return group;
  }
  return 1;
}

uint8_t weight_of(double count, double total) {
  if (!(count > 0)) return ABSENT;
  const double w = std::floor(8 * (log2_of(total) - log2_of(count)) + 0.5);
  return uint8_t(w < 0 ? 0 : w > ABSENT - 1 ? ABSENT - 1 : w);
}

// group, length, weights and escape of a part to `to`; how many bytes.
int store_part(const Part& p, const int64_t* tail, uint8_t* to) {
  int64_t all = 0;
  for (int k = 0; k <= 256 - COUNTED; ++k) all += tail[k];
  const double whole = double(all > 1 ? all : 1), last = double(p.count[COUNTED - 1]);
  const int group = group_of(p), base = base_of(group);
  double used[256];
  int length = 1;
  used[0] = 1;
  for (int k = base - 1; k >= 0; --k) {
    used[k] = k < COUNTED - 1 ? double(p.count[k]) : last * double(tail[k - COUNTED + 1]) / whole;
    if (used[k] > 0 && length == 1) length = k + 1;
  }
  if (length == 1 && used[0] == 0) used[0] = 1;
  int64_t here = 0;
  for (int k = 0; k < length && k < COUNTED; ++k) here += p.count[k];
  double other = double(p.total - here);
  if (length >= COUNTED) other = last * double(tail[256 - COUNTED]) / whole;
  const double total = double(p.total) + 0.5;
  to[0] = uint8_t(group), to[1] = uint8_t(length);
  for (int k = 0; k < length; ++k) to[2 + k] = weight_of(used[k], total);
  to[2 + length] = weight_of((other > 0 ? other : 0) + 0.5, total);
  return 3 + length;
}

// Neighbours become one where that saves more table than it takes bits.
int merge(double share, Part* parts, int* edge, int count) {
  double price[CONTEXTS], joint[CONTEXTS];
  const auto join = [&](int k) {
    Part both;
    for (int c = 0; c < COUNTED; ++c) both.count[c] = parts[k].count[c] + parts[k + 1].count[c];
    both.see();
    joint[k] = price_of(share, both);
  };
  for (int k = 0; k < count; ++k) price[k] = price_of(share, parts[k]);
  for (int k = 0; k + 1 < count; ++k) join(k);
  while (count > 1) {
    int best = 0;
    const auto gain = [&](int k) { return price[k] + price[k + 1] - joint[k]; };
    for (int k = 1; k + 1 < count; ++k)
      if (gain(k) > gain(best)) best = k;
    if (gain(best) <= 0) break;
    for (int c = 0; c < COUNTED; ++c) parts[best].count[c] += parts[best + 1].count[c];
    parts[best].see();
    price[best] = joint[best];
    --count;
    for (int k = best + 1; k < count; ++k) parts[k] = parts[k + 1], price[k] = price[k + 1];
    for (int k = best + 1; k <= count; ++k) edge[k] = edge[k + 1];
    for (int k = best + 1; k + 1 < count; ++k) joint[k] = joint[k + 1];
    if (best > 0) join(best - 1);
    if (best + 1 < count) join(best);
  }
  return count;
}

}  // namespace

bool load(const uint8_t* bytes, int64_t length, Contexts& c) {
  int64_t at = 0;
  const auto take = [&] { return at < length ? int(bytes[at++]) : (at = length + 1, 0); };
  const int is_signed = take();
  c.count = take();
  if (at > length || is_signed > 1 || c.count < 1 || c.count > CONTEXTS) return false;
  c.folded = !is_signed;
  for (int k = 0; k + 1 < c.count; ++k) {
    c.edge[k] = uint8_t(take());
    if (k > 0 && c.edge[k] < c.edge[k - 1]) return false;
  }
  for (int k = 0; k < c.count; ++k) {
    const int group = take(), count = take();
    if (count < 1 || count > base_of(group) || length - at < count + 1) return false;
    const uint8_t *weights = bytes + at, escape = bytes[at + count];
    bool some = escape < ABSENT;
    for (int j = 0; j < count; ++j) some |= weights[j] < ABSENT;
    if (!some) return false;
    c.group[k] = uint8_t(group);
    frequencies(group, weights, count, escape, c.frequency[k]);
    at += count + 1;
  }
  c.stored_bytes = int32_t(at);
  return true;
}

double choose(const int32_t* counts, int64_t n, Contexts& c) {
  Sums below;
  Part parts[CONTEXTS];
  std::memset(below[0], 0, sizeof below[0]);
  const int32_t* const every = counts + BINS * COUNTED;
  int64_t looked = 0, tail[257 - COUNTED];
  for (int k = 0; k < 256; ++k) looked += every[k];
  for (int k = 0; k <= 256 - COUNTED; ++k) tail[k] = every[COUNTED - 1 + k];
  if (looked < 1) looked = 1;
  const double share = n > looked ? double(n) / double(looked) : 1;
  Plan best{};
  double least = HUGE_VAL;
  for (int side = 0; side < 2; ++side) {
    const bool folded = side == 0;
    const int bins = folded ? BINS / 2 : BINS;
    for (int b = 0; b < bins; ++b)
      for (int k = 0; k < COUNTED; ++k) {
        const int64_t here = folded ? int64_t(counts[(bins + b) * COUNTED + k]) + counts[(bins - 1 - b) * COUNTED + k]
                                    : int64_t(counts[b * COUNTED + k]);
        below[b + 1][k] = below[b][k] + here;
      }
    for (int p = 0; p < 13; ++p) {
      const Plan plan = plan_of(folded, p);
      int64_t units = 0, table = 0, codes = 0;
      for (int k = 0; k < plan.count; ++k) {
        Part part;
        fill_part(below, plan, k, part);
        units += part.units, table += part.table, codes += part.codes;
      }
      const double cost = price_of(share, units, table, codes);
      if (!(cost < least)) continue;
      least = cost, best = plan;
    }
    if (best.folded == folded)
      for (int k = 0; k < best.count; ++k) fill_part(below, best, k, parts[k]);
  }
  const int count = merge(share, parts, best.edge, best.count);
  uint8_t* to = c.stored;
  *to++ = !best.folded, *to++ = uint8_t(count);
  for (int k = 1; k < count; ++k) *to++ = uint8_t(best.edge[k]);
  int64_t units = 0, all = 0;
  for (int k = 0; k < count; ++k) to += store_part(parts[k], tail, to), units += parts[k].units;
  for (int64_t t : tail) units -= surprise(t), all += t;
  const double bits = share * (double(units + surprise(all)) / UNIT);
  load(c.stored, to - c.stored, c);
  c.given = false;
  for (c.chain = 1; c.chain < 8 && !(c.chain * bits * SPAN >= double(80000 * n));) c.chain *= 2;
  const bool fine = bits > 7 * double(n) || double(every[ESCAPE]) / double(looked) > 0.01;
  return fine ? -1 : bits;
}

}  // namespace dithered_tables
}  // namespace actzip

#endif
