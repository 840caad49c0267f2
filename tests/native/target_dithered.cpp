// Dithered: what is encoded decodes within the bound, on its side of the origin; damaged bytes give
// a status.
#include "input.hpp"

namespace {

struct Case {
  int64_t n, dtype, channels, inner, sides, count, chain;
  uint64_t seed;
  Bytes bounds, low, origin, above, bin, group, x, levels, raw, data;
  Output out;
  std::vector<uint16_t> frequency;
  std::vector<int64_t> offsets, coded;

  int64_t chunks() const { return (n + 4095) / 4096; }
  int64_t chains() const { return (n + 65536 * chain - 1) / (65536 * chain); }
  int64_t decode() {
    return call(actzip_dithered_decode, levels, raw, offsets, coded, data, bin, group, frequency,
                count, chain, n, dtype, bounds, low, origin, above, channels, inner, seed, sides,
                out, harness_threads);
  }
};

Case read_case(Input& in) {
  choose_isa(in);
  Case c;
  c.dtype = in.below(4);
  c.n = in.below(4) ? in.elements(9000, ITEM[c.dtype]) : in.below(150000);
  c.channels = 1 + in.below(3), c.inner = 1 + in.below(200);
  c.sides = in.below(2), c.count = 1 + in.below(16), c.chain = 1 + in.below(3);
  c.seed = in.number(8);
  const size_t size = size_t(c.channels * real_size(c.dtype));
  for (Bytes* each : {&c.bounds, &c.low, &c.origin, &c.above}) each->resize(size);
  for (int64_t k = 0; k < c.channels; ++k) {
    const size_t at = size_t(k);
    put_real(c.bounds, at, c.dtype, std::ldexp(1.0, 3 - int(in.below(12))));
    put_real(c.low, at, c.dtype, std::ldexp(1.0, 3 - int(in.below(12))));
    const double origin = double(in.below(64)) / 64;  // exact in every type
    put_real(c.origin, at, c.dtype, origin);
    put_real(c.above, at, c.dtype, origin + std::ldexp(1.0, -6));
  }
  for (int b = 0; b < 256; ++b) c.bin.push_back(uint8_t(in.below(c.count)));
  const uint8_t groups[] = {1, 2, 3, 4, 5, 8};
  for (int64_t k = 0; k < c.count; ++k) {
    c.group.push_back(groups[in.below(6)]);
    const std::vector<uint16_t> one = frequencies(in, 255);  // the escape is always there
    c.frequency.insert(c.frequency.end(), one.begin(), one.end());
  }
  c.levels.resize(size_t(c.chunks()));
  c.raw.resize(size_t(8 * c.chunks()));
  c.out.resize(size_t(c.n * ITEM[c.dtype]));
  return c;
}

float number(const Bytes& from, int64_t k) {
  float value;
  std::memcpy(&value, from.data() + 4 * k, 4);
  return value;
}

void check_bound(const Case& c) {
  if (c.dtype != 0) return;
  for (int64_t i = 0; i < c.n; ++i) {
    const int64_t channel = i / c.inner % c.channels;
    const float a = number(c.x, i);
    float b;
    std::memcpy(&b, c.out.data() + 4 * i, 4);
    const bool above = a > number(c.origin, channel);
    const double e = number(c.sides && !above ? c.low : c.bounds, channel);
    if (std::isfinite(a)) require(std::fabs(double(a) - b) <= e * (1 + 1e-6), "bound");
    if (c.sides) require(above == (b > number(c.origin, channel)), "side");
  }
}

// Fills in what encoding makes; false when extra bits found no room.
bool encode(Case& c, int64_t room) {
  const size_t chains = size_t(c.chains());
  std::vector<int32_t> counts(size_t(harness_threads) * 16640);
  require(call(actzip_dithered_count, c.x, c.n, c.dtype, c.bounds, c.low, c.origin, c.above,
               c.channels, c.inner, c.seed, c.sides, 1 + c.n % 3, counts, harness_threads) == 0,
          "count");
  std::vector<int64_t> sizes(2 * chains), place(chains), whole;
  Bytes workspace(static_cast<size_t>(room));
  std::vector<uint32_t> scratch(size_t(harness_threads) * 2297984 / 4);
  const int64_t total = call(actzip_dithered_encode, c.x, c.n, c.dtype, c.bounds, c.low, c.origin,
                             c.above, c.channels, c.inner, c.seed, c.sides, c.bin, c.group,
                             c.frequency, c.count, c.chain, c.levels, c.raw, sizes, place,
                             workspace, scratch, harness_threads);
  require(total >= 0, "encode");
  for (size_t k = 0; k < chains; ++k) {
    if (sizes[2 * k] < 0) return false;
    whole.push_back(sizes[2 * k]);
    c.coded.push_back(sizes[2 * k + 1]);
  }
  c.data.resize(static_cast<size_t>(total));
  c.offsets = offsets_of(whole);
  require(call(actzip_dithered_gather, c.x, c.n, c.dtype, c.bounds, c.low, c.origin, c.above,
               c.channels, c.inner, c.seed, c.sides, c.bin, c.group, c.frequency, c.count, c.chain,
               c.levels, c.raw, sizes, place, workspace, scratch, c.offsets, c.data,
               harness_threads) == 0,
          "gather");
  c.offsets.push_back(total);
  return true;
}

}  // namespace

int fuzz_dithered(const uint8_t* bytes, size_t size) {
  Input in{bytes, size};
  Case c = read_case(in);
  if (in.below(2)) {  // the input is the payload
    c.levels = in.fill(c.levels.size());
    for (uint8_t& level : c.levels) level &= 7;
    if (in.below(2)) c.raw = in.fill(c.raw.size());
    for (int64_t k = 0; k <= c.chains(); ++k) c.offsets.push_back(k ? in.below(900) : 0);
    for (int64_t k = 0; k < c.chains(); ++k) c.coded.push_back(in.below(600));
    c.data = in.rest();
    for (size_t at = 2; at + 1 < c.data.size() && at < 128; at += 4)
      c.data[at] |= 1, c.data[at + 1] &= 127;  // states that may be some
    c.decode();
    return 0;
  }
  const int64_t room = in.below(30000);
  Input later = in;
  c.x = values(in, c.n, c.dtype);
  if (!encode(c, room)) return 0;
  require(c.decode() == 0, "own bytes decode");
  check_bound(c);
  const bool damaged = damage(later, c.data) | damage(later, c.raw) | damage(later, c.levels) |
                       damage(later, c.offsets) | damage(later, c.coded);
  if (damaged) c.decode();
  return 0;
}
