// Bounded with the entropy stage: symbols of any frequency table come back; damage gives a status.
#include "input.hpp"

namespace {

struct Case {
  int64_t n, dtype, channels, inner, dither, width, height, kind, chain;
  uint64_t seed;
  Bytes bounds, x, levels, raw, data;
  Output out;
  std::vector<uint16_t> frequency;
  std::vector<int64_t> offsets;

  int64_t chunks() const { return (n + 4095) / 4096; }
  int64_t spans() const { return (n + 65535) / 65536; }
  int64_t decode() {
    return call(actzip_bounded_unsqueeze, levels, raw, offsets, data, frequency, kind, chain, n,
                dtype, bounds, channels, inner, seed, dither, width, height, out,
                harness_threads);
  }
};

Case read_case(Input& in) {
  choose_isa(in);
  Case c;
  c.dtype = in.below(4);
  c.n = in.below(4) ? in.elements(9000, ITEM[c.dtype]) : in.below(150000);
  c.channels = 1 + in.below(3), c.inner = 1 + in.below(200);
  c.dither = in.below(2), c.width = in.below(3) == 0 ? 1 + in.below(300) : 0;
  c.height = 1 + in.below(30), c.kind = in.below(3), c.chain = 1 + in.below(3);
  c.seed = in.number(8);
  c.bounds.resize(size_t(c.channels * real_size(c.dtype)));
  for (int64_t k = 0; k < c.channels; ++k)
    put_real(c.bounds, size_t(k), c.dtype, std::ldexp(1.0, -int(in.below(24))));
  c.frequency = frequencies(in, 255);  // the escape is always there
  c.levels.resize(size_t(c.chunks()));
  c.raw.resize(size_t(8 * c.chunks()));
  c.out.resize(size_t(c.n * ITEM[c.dtype]));
  return c;
}

void check_bound(const Case& c) {
  if (c.dtype != 0) return;
  for (int64_t i = 0; i < c.n; ++i) {
    float a, b, e;
    std::memcpy(&a, c.x.data() + 4 * i, 4);
    std::memcpy(&b, c.out.data() + 4 * i, 4);
    std::memcpy(&e, c.bounds.data() + 4 * (i / c.inner % c.channels), 4);
    if (std::isfinite(a)) require(std::fabs(double(a) - b) <= double(e) * (1 + 1e-6), "bound");
    if (a == 0) require(b == 0, "zeros stay zeros");
  }
}

// Fills in what encoding makes; false when extra bits found no room.
bool encode(Case& c, int64_t room) {
  std::vector<int64_t> counts(769), sizes(static_cast<size_t>(c.spans())), place(static_cast<size_t>(c.spans()));
  require(call(actzip_bounded_count, c.x, c.n, c.dtype, c.bounds, c.channels, c.inner, c.seed,
               c.dither, c.width, c.height, 1 + c.n % 3, counts, harness_threads) >= 0, "count");
  Bytes workspace(static_cast<size_t>(room));
  const int64_t total = call(actzip_bounded_squeeze, c.x, c.n, c.dtype, c.bounds, c.channels,
                             c.inner, c.seed, c.dither, c.width, c.height, c.frequency, c.kind,
                             c.chain, c.levels, c.raw, sizes, place, workspace, harness_threads);
  for (int64_t s : sizes)
    if (s < 0) return false;
  c.data.resize(static_cast<size_t>(total));
  c.offsets = offsets_of(sizes);
  call(actzip_bounded_squeeze_gather, c.x, c.n, c.dtype, c.bounds, c.channels, c.inner, c.seed,
       c.dither, c.width, c.height, c.frequency, c.kind, c.chain, c.levels, c.raw, sizes, place,
       workspace, c.offsets, c.data, harness_threads);
  return true;
}

}  // namespace

int fuzz_bounded_entropy(const uint8_t* bytes, size_t size) {
  Input in{bytes, size};
  Case c = read_case(in);
  if (in.below(2)) {  // the input is the payload
    c.levels = in.fill(c.levels.size());
    for (uint8_t& level : c.levels) level &= 7;
    if (in.below(2)) c.raw = in.fill(c.raw.size());
    for (int64_t k = 0; k < c.spans(); ++k) c.offsets.push_back(k ? in.below(600) : 0);
    c.data = in.rest();
    // a length of coded symbols that may fit, now and then
    if (c.data.size() > 4 && in.below(4)) c.data[1] = c.data[2] = c.data[3] = 0;
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
                       damage(later, c.offsets);
  if (damaged) c.decode();
  return 0;
}
