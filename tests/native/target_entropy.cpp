// The entropy stage: codes come back exactly; any bytes at all give a status.
#include "input.hpp"

int fuzz_entropy(const uint8_t* bytes, size_t size) {
  Input in{bytes, size};
  choose_isa(in);
  const int64_t n = in.below(16) ? in.elements(3000, 1) : in.below(200000);
  const int64_t spans = (n + 65535) / 65536, chain = 1 + in.below(9), room = in.below(40000);
  std::vector<uint16_t> frequency = frequencies(in, 0);
  Bytes codes(static_cast<size_t>(n)), back(static_cast<size_t>(n)), data;
  std::vector<int64_t> offsets(static_cast<size_t>(spans));
  const auto decode = [&] {
    return call(actzip_entropy_decode, offsets, data, frequency, chain, n, back, harness_threads);
  };
  if (in.below(2)) {  // the input is the payload, and now and then the table
    if (in.below(8) == 0) frequency[size_t(in.below(256))] = uint16_t(in.number(2));
    for (int64_t& begin : offsets) begin = in.below(300);
    if (!offsets.empty() && in.below(4)) offsets[0] = 0;
    data = in.rest();
    decode();
    return 0;
  }
  Input later = in;
  codes = in.fill(size_t(n));
  std::vector<uint8_t> known;
  for (int s = 0; s < 256; ++s)
    if (frequency[size_t(s)]) known.push_back(uint8_t(s));
  for (uint8_t& code : codes) code = known[code % known.size()];
  std::vector<int64_t> counts(256), sizes(static_cast<size_t>(spans)), place(static_cast<size_t>(spans));
  call(actzip_entropy_count, codes, n, counts, harness_threads);
  Bytes workspace(static_cast<size_t>(room));
  const int64_t total =
      call(actzip_entropy_encode, codes, n, frequency, chain, sizes, place, workspace,
           harness_threads);
  require((total >= 0) == (chain <= 8), "chains have 1 to 8 spans");
  if (total < 0) return 0;
  data.resize(static_cast<size_t>(total));
  offsets = offsets_of(sizes);
  call(actzip_entropy_gather, codes, n, frequency, chain, sizes, place, workspace, offsets, data,
       harness_threads);
  require(decode() == 0 && back == codes, "codes come back");
  if (damage(later, data) | damage(later, offsets)) decode();
  return 0;
}
