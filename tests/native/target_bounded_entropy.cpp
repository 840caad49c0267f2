// Bounded with the entropy stage: symbols of any frequency table come back; damage gives a status.
#include "input.hpp"

int fuzz_bounded_entropy(const uint8_t* bytes, size_t size) {
  Input in{bytes, size};
  choose_isa(in);
  const int64_t n = in.below(70000), dtype = in.below(4), dither = in.below(2);
  const int64_t width = in.below(3) == 0 ? 1 + in.below(300) : 0, height = 1 + in.below(30);
  const int64_t is_signed = width > 0 ? 1 : in.below(2), room = in.below(30000);
  const uint64_t seed = in.number(8);
  const int64_t chunks = (n + 4095) / 4096, spans = (n + 65535) / 65536;
  Bytes bound(size_t(real_size(dtype)));
  put_real(bound, 0, dtype, std::ldexp(1.0, -int(in.below(24))));
  std::vector<uint16_t> frequency(256, 0);
  frequency[255] = 1;  // the escape is always there
  for (int left = 4095; left > 0;) {
    const int part = 1 + int(in.below(left));
    uint16_t& f = frequency[size_t(in.below(255))];
    f = uint16_t(f + (f + part > 4094 ? 0 : part));
    left -= part;
  }
  int sum = 0;
  for (uint16_t f : frequency) sum += f;
  frequency[0] = uint16_t(frequency[0] + 4096 - sum);
  if (frequency[0] > 4095) return 0;
  Input later = in;
  const Bytes x = values(in, n, dtype);
  std::vector<int64_t> counts(513);
  require(actzip_bounded_count(x.data(), n, dtype, bound.data(), 1, 1, seed, dither, width, height,
                               1, counts.data(), harness_threads) >= 0, "count");
  Bytes levels(static_cast<size_t>(chunks)), raw(size_t(8 * chunks)), workspace(static_cast<size_t>(room));
  Bytes offsets(size_t(8 * spans)), out(size_t(n * ITEM[dtype]));
  std::vector<int64_t> sizes(static_cast<size_t>(spans)), place(static_cast<size_t>(spans));
  const int64_t total = actzip_bounded_squeeze(
      x.data(), n, dtype, bound.data(), 1, 1, seed, dither, width, height, frequency.data(),
      is_signed, levels.data(), raw.data(), sizes.data(), place.data(), workspace.data(), room,
      harness_threads);
  for (int64_t s : sizes)
    if (s < 0) return 0;
  Bytes data(static_cast<size_t>(total));
  actzip_bounded_squeeze_gather(x.data(), n, dtype, bound.data(), 1, 1, seed, dither, width, height,
                                frequency.data(), is_signed, levels.data(), raw.data(),
                                sizes.data(), place.data(), workspace.data(), offsets.data(),
                                data.data(), harness_threads);
  const auto decode = [&] {
    return actzip_bounded_unsqueeze(levels.data(), raw.data(), offsets.data(), data.data(),
                                    int64_t(data.size()), frequency.data(), is_signed, n, dtype,
                                    bound.data(), 1, 1, seed, dither, width, height, out.data(),
                                    harness_threads);
  };
  require(decode() == 0, "own bytes decode");
  if (dtype == 0)
    for (int64_t i = 0; i < n; ++i) {
      float a, b, e;
      std::memcpy(&a, x.data() + 4 * i, 4);
      std::memcpy(&b, out.data() + 4 * i, 4);
      std::memcpy(&e, bound.data(), 4);
      if (std::isfinite(a)) require(std::fabs(double(a) - b) <= double(e) * (1 + 1e-6), "bound");
    }
  const bool damaged = damage(later, data) | damage(later, raw) | damage(later, levels) |
                       damage(later, offsets);
  if (damaged) decode();
  return 0;
}
