// Bounded: what is encoded decodes within the bound; damaged bytes give a status.
#include "input.hpp"

namespace {

struct Case {
  int64_t n, dtype, channels, inner, dither, width, height;
  uint64_t seed;
  Bytes bounds;
};

Case read_case(Input& in) {
  choose_isa(in);
  Case c;
  c.dtype = in.below(4);
  c.n = in.elements(10000, ITEM[c.dtype]);
  c.channels = 1 + in.below(5);
  c.inner = 1 + in.below(200);
  c.dither = in.below(2);
  c.width = in.below(3) == 0 ? 1 + in.below(300) : 0;
  c.height = 1 + in.below(30);
  c.seed = in.number(8);
  c.bounds.resize(size_t(c.channels * real_size(c.dtype)));
  for (int64_t k = 0; k < c.channels; ++k)
    put_real(c.bounds, size_t(k), c.dtype, std::ldexp(1.0, -int(in.below(24))));
  return c;
}

int64_t decode(const Case& c, const Bytes& table, const Bytes& headers, const Bytes& data, Output& out) {
  return call(actzip_bounded_decode, table, headers, data, c.n, c.dtype, c.bounds, c.channels,
              c.inner, c.seed, c.dither, c.width, c.height, out, harness_threads);
}

void check_bound(const Case& c, const Bytes& x, const Output& y) {
  if (c.dtype != 0) return;
  for (int64_t i = 0; i < c.n; ++i) {
    float a, b, e;
    std::memcpy(&a, x.data() + 4 * i, 4);
    std::memcpy(&b, y.data() + 4 * i, 4);
    std::memcpy(&e, c.bounds.data() + 4 * (i / c.inner % c.channels), 4);
    if (std::isfinite(a)) require(std::fabs(double(a) - double(b)) <= double(e) * (1 + 1e-6), "bound");
    if (a == 0) require(b == 0, "zeros stay zeros");
  }
}

}  // namespace

int fuzz_bounded(const uint8_t* bytes, size_t size) {
  Input in{bytes, size};
  const Case c = read_case(in);
  const int64_t chunks = (c.n + 4095) / 4096, blocks = (c.n + 63) / 64;
  Output out(size_t(c.n * ITEM[c.dtype]));
  if (in.below(2)) {  // the input is the payload
    Bytes all = in.fill(size_t(8 * chunks + blocks) + in.left);
    for (int64_t k = 0; k < chunks; ++k) all[size_t(8 * k + 6)] = all[size_t(8 * k + 7)] = 0;
    const Bytes table(all.begin(), all.begin() + 8 * chunks);
    const Bytes headers(all.begin() + 8 * chunks, all.begin() + 8 * chunks + blocks);
    decode(c, table, headers, Bytes(all.begin() + 8 * chunks + blocks, all.end()), out);
    return 0;
  }
  const int64_t room = in.below(20000);
  Input later = in;
  const Bytes x = values(in, c.n, c.dtype);
  Bytes headers(size_t(blocks), 0), workspace(static_cast<size_t>(room)), table(size_t(8 * chunks));
  std::vector<uint64_t> sizes(static_cast<size_t>(chunks));
  std::vector<int64_t> place(static_cast<size_t>(chunks));
  const int64_t total = call(actzip_bounded_encode, x, c.n, c.dtype, c.bounds, c.channels,
                             c.inner, c.seed, c.dither, c.width, c.height, headers, sizes, place,
                             workspace, harness_threads);
  require(total >= 0 && total <= c.n * ITEM[c.dtype], "never larger than raw");
  Bytes data(static_cast<size_t>(total));
  call(actzip_bounded_gather, x, c.n, c.dtype, c.bounds, c.channels, c.inner, c.seed, c.dither,
       c.width, c.height, headers, sizes, place, workspace, table, data, harness_threads);
  require(decode(c, table, headers, data, out) == 0, "own bytes decode");
  check_bound(c, x, out);
  const bool damaged = damage(later, data) | damage(later, headers) | damage(later, table);
  if (damaged) decode(c, table, headers, data, out);
  return 0;
}
