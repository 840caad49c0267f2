// Group: what is encoded decodes; damaged bytes give a status.
#include "input.hpp"

int fuzz_group(const uint8_t* bytes, size_t size) {
  Input in{bytes, size};
  choose_isa(in);
  const int64_t dtype = in.below(4), n = in.elements(5000, ITEM[dtype]), samples = 1 + in.below(3);
  const int64_t group = 1 + in.below(600), rounding = in.below(3), zero = in.below(2);
  const uint64_t seed = in.number(8);
  Bytes bits(static_cast<size_t>(samples));
  Output out(size_t(samples * n * ITEM[dtype]));
  for (uint8_t& b : bits) b = uint8_t(1 + in.below(8));
  const std::vector<int64_t> offsets = row_offsets(n, group, dtype, bits);
  Bytes data;
  const auto decode = [&] {
    Output mask(size_t(samples * n));
    call(actzip_group_nonzero, data, mask, 4, samples, n, group, dtype == 3 ? 4 : 2, bits,
         offsets, harness_threads);
    return call(actzip_group_decode, data, out, dtype, samples, n, group, bits, offsets,
                rounding, zero, seed, harness_threads);
  };
  if (in.below(2)) {  // the input is the payload, of a size that may fit
    data = in.fill(size_t(offsets.back() + (in.below(3) == 0 ? in.below(64) : 0)));
    decode();
    return 0;
  }
  Input later = in;
  const Bytes x = values(in, samples * n, dtype);
  data.resize(size_t(offsets.back()));
  const int64_t raw = call(actzip_group_encode, x, dtype, samples, n, group, bits, offsets,
                           rounding, zero, seed, data, harness_threads);
  require(raw >= 0, "encodes");
  data.resize(data.size() + size_t(raw * ITEM[dtype]));
  call(actzip_group_raw, x, dtype, samples, n, group, bits, offsets, data);
  require(decode() == 0, "own bytes decode");
  if (damage(later, data)) decode();
  return 0;
}
