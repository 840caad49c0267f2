// FixedPoint: what is encoded decodes; damaged bytes give a status.
#include "input.hpp"

int fuzz_fixedpoint(const uint8_t* bytes, size_t size) {
  Input in{bytes, size};
  choose_isa(in);
  const int64_t dtype = in.below(4), n = in.elements(10000, ITEM[dtype]), channels = 1 + in.below(5);
  const int64_t inner = 1 + in.below(200), rounding = in.below(3), skip = in.below(2);
  const int64_t room = in.below(20000), chunks = (n + 4095) / 4096, real = real_size(dtype);
  const uint64_t seed = in.number(8);
  Bytes bits(static_cast<size_t>(channels)), steps(size_t(channels * real)), limits(size_t(channels * real));
  for (uint8_t& b : bits) b = uint8_t(2 + in.below(15));
  for (int64_t k = 0; k < channels; ++k) {
    const double step = std::ldexp(1.0, int(in.below(60)) - 40);
    put_real(steps, size_t(k), dtype, step);
    put_real(limits, size_t(k), dtype, step);
  }
  Bytes offsets(size_t(8 * chunks)), data = in.rest();
  Output out(size_t(n * ITEM[dtype]));
  const auto decode = [&] {
    return call(actzip_fixedpoint_decode, offsets, data, n, dtype, bits, steps, channels, inner,
                seed, rounding, skip, out, harness_threads);
  };
  if (in.below(2)) {  // the input is the payload
    decode();
    return 0;
  }
  Input later = in;
  const Bytes x = values(in, n, dtype);
  Bytes largest(size_t(channels * real)), workspace(static_cast<size_t>(room));
  call(actzip_fixedpoint_range, x, n, dtype, channels, inner, largest, harness_threads);
  std::vector<int64_t> sizes(static_cast<size_t>(chunks)), place(static_cast<size_t>(chunks));
  const int64_t total = call(actzip_fixedpoint_encode, x, n, dtype, bits, steps, limits,
                             channels, inner, seed, rounding, skip, sizes, place, workspace,
                             harness_threads);
  data.resize(static_cast<size_t>(total));
  call(actzip_fixedpoint_gather, x, n, dtype, bits, steps, limits, channels, inner, seed,
       rounding, skip, sizes, place, workspace, offsets, data, harness_threads);
  require(decode() == 0, "own bytes decode");
  if (damage(later, data) | damage(later, offsets)) decode();
  return 0;
}
