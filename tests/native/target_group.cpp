// Group, and Dual which is built on it: what is encoded decodes; damaged bytes give a status.
#include "input.hpp"

namespace {

int64_t packed_size(int64_t n, int64_t bits) { return (n / 32 * 4 + (n % 32 + 7) / 8) * bits; }

// Offsets of the codes of each row, after the metadata of all groups.
std::vector<int64_t> row_offsets(int64_t n, int64_t group, int64_t dtype, const Bytes& bits) {
  const int64_t groups = (n + group - 1) / group, item = dtype == 3 ? 4 : 2;
  std::vector<int64_t> at{2 * int64_t(bits.size()) * groups * item};
  for (uint8_t b : bits) at.push_back(at.back() + packed_size(n, b));
  return at;
}

}  // namespace

int fuzz_group(const uint8_t* bytes, size_t size) {
  Input in{bytes, size};
  choose_isa(in);
  const int64_t n = in.below(5000), dtype = in.below(4), samples = 1 + in.below(3);
  const int64_t group = 1 + in.below(600), rounding = in.below(3), zero = in.below(2);
  const uint64_t seed = in.number(8);
  Bytes bits(static_cast<size_t>(samples)), out(size_t(samples * n * ITEM[dtype]));
  for (uint8_t& b : bits) b = uint8_t(1 + in.below(8));
  const std::vector<int64_t> offsets = row_offsets(n, group, dtype, bits);
  Bytes data;
  const auto decode = [&] {
    Bytes mask(size_t(samples * n));
    actzip_group_nonzero(data.data(), int64_t(data.size()), mask.data(), 4, samples, n, group,
                         dtype == 3 ? 4 : 2, bits.data(), offsets.data(), harness_threads);
    return actzip_group_decode(data.data(), int64_t(data.size()), out.data(), dtype, samples, n,
                               group, bits.data(), offsets.data(), rounding, zero, seed,
                               harness_threads);
  };
  if (in.below(2)) {  // the input is the payload, of a size that may fit
    data = in.fill(size_t(offsets.back() + (in.below(3) == 0 ? in.below(64) : 0)));
    decode();
    return 0;
  }
  Input later = in;
  const Bytes x = values(in, samples * n, dtype);
  data.resize(size_t(offsets.back()));
  const int64_t raw = actzip_group_encode(x.data(), dtype, samples, n, group, bits.data(),
                                          offsets.data(), rounding, zero, seed, data.data(),
                                          int64_t(data.size()), harness_threads);
  require(raw >= 0, "encodes");
  data.resize(data.size() + size_t(raw * ITEM[dtype]));
  actzip_group_raw(x.data(), dtype, samples, n, group, bits.data(), offsets.data(), data.data(),
                   int64_t(data.size()));
  require(decode() == 0, "own bytes decode");
  if (damage(later, data)) decode();
  return 0;
}

int fuzz_dual(const uint8_t* bytes, size_t size) {
  Input in{bytes, size};
  choose_isa(in);
  const int64_t maps = in.below(20), dtype = in.below(4), rounding = in.below(3);
  const int64_t sides[3] = {1 + in.below(4), 1 + in.below(30), 1 + in.below(30)};
  const int64_t block = 1 + in.below(12), original = in.below(2), real = real_size(dtype);
  const uint64_t seed = in.number(8);
  int64_t elements = 1, means = 1;
  for (int64_t side : sides) {
    const int64_t edge = block < side ? block : side;
    elements *= side;
    means *= original ? side / edge : (side + edge - 1) / edge;
  }
  const Bytes bits{uint8_t(1 + in.below(8))};
  const int64_t n = maps * elements;
  const std::vector<int64_t> offsets = row_offsets(n, elements, dtype, bits);
  // scratch as native/dual.py gives it
  const int64_t unit = elements % 32 ? 32 : 1, per = 16384 / (unit * elements);
  const int64_t chunk = unit * (per > 1 ? per : 1);
  Bytes scratch(size_t(harness_threads * (chunk * elements + sides[2]) * real));
  Bytes averages(size_t(maps * means * real / 2)), data, out(size_t(n * ITEM[dtype]));
  if (n == 0) return 0;
  const auto decode = [&] {
    return actzip_dual_decode(averages.data(), int64_t(averages.size()), data.data(),
                              int64_t(data.size()), out.data(), dtype, maps, sides[0], sides[1],
                              sides[2], block, original, bits.data(), offsets.data(), rounding,
                              seed, scratch.data(), harness_threads);
  };
  if (in.below(2)) {
    averages = in.fill(averages.size());
    data = in.fill(size_t(offsets.back() + (in.below(3) == 0 ? in.below(64) : 0)));
    decode();
    return 0;
  }
  Input later = in;
  const Bytes x = values(in, n, dtype);
  data.resize(size_t(offsets.back()));
  const int64_t raw = actzip_dual_encode(
      x.data(), dtype, maps, sides[0], sides[1], sides[2], block, original, bits.data(),
      offsets.data(), rounding, seed, averages.data(), int64_t(averages.size()), data.data(),
      int64_t(data.size()), scratch.data(), harness_threads);
  require(raw >= 0, "encodes");
  data.resize(data.size() + size_t(raw * ITEM[dtype]));
  actzip_group_raw(x.data(), dtype, 1, n, elements, bits.data(), offsets.data(), data.data(),
                   int64_t(data.size()));
  require(decode() == 0, "own bytes decode");
  if (damage(later, data) | damage(later, averages)) decode();
  return 0;
}
