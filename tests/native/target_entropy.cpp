// The entropy stage: codes come back exactly; any bytes at all give a status.
#include "input.hpp"

int fuzz_entropy(const uint8_t* bytes, size_t size) {
  Input in{bytes, size};
  choose_isa(in);
  const int64_t n = in.below(140000), spans = (n + 65535) / 65536, room = in.below(40000);
  std::vector<uint16_t> frequency(256, 0);
  const int64_t kinds = 2 + in.below(254);
  for (int64_t s = 0; s < kinds; ++s) frequency[size_t(s)] = uint16_t(4096 / kinds);
  frequency[0] = uint16_t(frequency[0] + 4096 - 4096 / kinds * kinds);
  Bytes offsets(size_t(8 * spans)), codes(static_cast<size_t>(n)), back(static_cast<size_t>(n));
  if (in.below(2)) {  // the input is the payload, and now and then the table
    if (in.below(8) == 0) frequency[size_t(in.below(256))] = uint16_t(in.number(2));
    const Bytes data = in.rest();
    for (int64_t k = 0; k < spans; ++k) offsets[size_t(8 * k)] = uint8_t(in.number(1));
    actzip_entropy_decode(offsets.data(), data.data(), int64_t(data.size()), frequency.data(), n,
                          back.data(), harness_threads);
    return 0;
  }
  Input later = in;
  codes = in.fill(size_t(n));
  for (uint8_t& code : codes) code = uint8_t(code % kinds);
  std::vector<int64_t> counts(256), sizes(static_cast<size_t>(spans)), place(static_cast<size_t>(spans));
  actzip_entropy_count(codes.data(), n, counts.data(), harness_threads);
  Bytes workspace(static_cast<size_t>(room));
  const int64_t total = actzip_entropy_encode(codes.data(), n, frequency.data(), sizes.data(),
                                              place.data(), workspace.data(), room, harness_threads);
  Bytes data(static_cast<size_t>(total));
  actzip_entropy_gather(codes.data(), n, frequency.data(), sizes.data(), place.data(),
                        workspace.data(), offsets.data(), data.data(), harness_threads);
  const auto decode = [&] {
    return actzip_entropy_decode(offsets.data(), data.data(), int64_t(data.size()),
                                 frequency.data(), n, back.data(), harness_threads);
  };
  require(decode() == 0 && back == codes, "codes come back");
  if (damage(later, data) | damage(later, offsets)) decode();
  return 0;
}
