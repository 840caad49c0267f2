// Dithered: what is encoded decodes within the bound, on its side of the origin; damaged bytes give
// a status.
#include "input.hpp"

namespace {

struct Case {
  int64_t n, dtype, channels, inner, sides;
  uint64_t seed;
  Bytes bounds, low, origin, above, grid, x, data, scratch, given;
  Output out;
  std::vector<int64_t> offsets;
  bool cut;  // the scratch may be too short: it is refused, or it is enough

  int64_t decode() {
    return call(actzip_dithered_decode, data, n, dtype, grid, channels, inner, seed, sides, out, offsets,
                scratch, harness_threads);
  }
};

Case read_case(Input& in) {
  choose_isa(in);
  Case c;
  c.dtype = in.below(4);
  c.n = in.below(4) ? in.elements(9000, ITEM[c.dtype]) : in.below(150000);
  c.channels = 1 + in.below(3), c.inner = in.below(2) ? 1 : 1 + in.below(200);
  c.sides = in.below(2);
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
  for (const Bytes* each : {&c.bounds, &c.low, &c.origin, &c.above})
    c.grid.insert(c.grid.end(), each->begin(), each->end());
  c.out.resize(size_t(c.n * ITEM[c.dtype]));
  c.offsets.resize(size_t(c.n / 65536 + 2));
  c.scratch.resize(size_t(harness_threads) * 2700000 + 40000);
  c.cut = in.below(8) == 0;
  if (c.cut) c.scratch.resize(size_t(in.below(int64_t(c.scratch.size()))));
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

// Fills in what encoding makes; false when steps are too fine or extra bits found no room.
bool encode(Case& c, int64_t room) {
  Bytes state(size_t(32768 + 9 * (c.n / 4096 + 1) + 24 * (c.n / 65536 + 1)));
  if (c.cut && c.seed & 1) state.resize(size_t(c.seed % state.size()));
  const auto with = [&](auto* entry, const auto&... more) {
    return call(entry, c.x, c.n, c.dtype, c.grid, c.channels, c.inner, c.seed, c.sides, more...,
                harness_threads);
  };
  const int64_t expected = with(actzip_dithered_count, 1 + c.n % 3, state, c.scratch);
  require(expected >= 0 || c.cut, "count");
  if (c.given.size()) {
    const int64_t status = call(actzip_dithered_given, c.given, c.n, state);
    if (status != 0) return false;
  } else if (expected <= 0) {
    return false;
  }
  Bytes workspace(static_cast<size_t>(room));
  const int64_t total = with(actzip_dithered_encode, state, workspace, c.scratch);
  require(total >= 0 || c.cut, "encode");
  require(total > 0 || c.cut || c.given.empty(), "given tables fit all values");
  if (total <= 0) return false;
  c.data.resize(static_cast<size_t>(total));
  const bool gathered = with(actzip_dithered_gather, state, workspace, c.scratch, c.data) == 0;
  require(gathered || c.cut, "gather");
  return gathered;
}

}  // namespace

int fuzz_dithered(const uint8_t* bytes, size_t size) {
  Input in{bytes, size};
  Case c = read_case(in);
  if (in.below(2)) {  // the input is the payload
    c.data = in.rest();
    if (c.data.size() > 4) c.data[0] &= 3, c.data[1] %= 8, c.data[2] = uint8_t(1 << c.data[2] % 4), c.data[3] &= 1;
    c.decode();
    return 0;
  }
  const int64_t room = in.below(30000);
  if (in.below(2)) {  // one context, of any weights
    const int group = int(in.below(3)), length = group == 0 ? 200 : 2;
    c.given = {uint8_t(1 << in.below(4)), 0, 1, uint8_t(group == 0 ? 1 : group == 1 ? 2 : 8), uint8_t(length)};
    for (int k = 0; k <= length; ++k) c.given.push_back(uint8_t(in.below(256)));
  }
  Input later = in;
  c.x = values(in, c.n, c.dtype);
  if (!encode(c, room)) return 0;
  const bool decoded = c.decode() == 0;
  require(decoded || c.cut, "own bytes decode");
  if (decoded) check_bound(c);
  if (damage(later, c.data)) c.decode();
  return 0;
}
