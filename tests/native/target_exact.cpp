// Index, Window, BitMask and bit planes: what is encoded comes back exactly; damaged bytes give a status.
#include "input.hpp"

int fuzz_index(const uint8_t* bytes, size_t size) {
  static constexpr int64_t sizes[7] = {1, 1, 2, 4, 8, 2, 4};  // of the dtypes 4 to 10
  Input in{bytes, size};
  choose_isa(in);
  const int64_t dtype = 4 + in.below(7), item = sizes[dtype - 4], n = in.elements(70000, item);
  Output out(size_t(n * item));
  if (in.below(2)) {
    const int64_t bits = in.below(70), lo = int64_t(in.number(8));
    const Bytes data = in.fill(size_t((n * bits + 7) / 8 + in.below(2)));
    call(actzip_index_decode, data, out, dtype, n, lo, bits, harness_threads);
    return 0;
  }
  if (n == 0) return 0;
  const Bytes x = in.fill(size_t(n * item));
  int64_t lohi[2];
  require(call(actzip_index_range, x, dtype, n, lohi, harness_threads) == 0, "range");
  int64_t bits = 1;
  while (bits < 64 && (uint64_t(lohi[1]) - uint64_t(lohi[0])) >> bits) ++bits;
  Bytes data(size_t((n * bits + 7) / 8));
  require(call(actzip_index_encode, x, dtype, n, lohi[0], bits, data, harness_threads) == 0, "encodes");
  require(call(actzip_index_decode, data, out, dtype, n, lohi[0], bits, harness_threads) == 0 && same(out, x), "comes back exactly");
  return 0;
}

int fuzz_window(const uint8_t* bytes, size_t size) {
  Input in{bytes, size};
  choose_isa(in);
  int64_t g[19];  // pooled size, kernel, stride, padding, dilation, map size, maps side by side
  int64_t planes = 1 + in.below(4), n = planes;
  for (int d = 0; d < 3; ++d) {
    g[d] = in.below(9), g[3 + d] = 1 + in.below(4), g[6 + d] = 1 + in.below(4);
    g[9 + d] = in.below(3), g[12 + d] = 1 + in.below(3), g[15 + d] = 1 + in.below(20);
    n *= g[d];
  }
  g[18] = in.below(2) ? 1 : planes;
  Bytes places(static_cast<size_t>(n));
  std::vector<int64_t> indices(static_cast<size_t>(n));
  if (in.below(2)) {
    places = in.fill(size_t(n));
    if (call(actzip_window_decode, places, n, g, indices, harness_threads) != 0) return 0;
    Bytes again(static_cast<size_t>(n));
    require(call(actzip_window_encode, indices, n, g, again, harness_threads) == 0 &&
                again == places, "places that decode come back exactly");
    for (int64_t i : indices)
      require(i >= 0 && i < g[15] * g[16] * g[17], "an index lies in the map");
    return 0;
  }
  const Bytes raw = in.fill(size_t(8 * n));
  if (n) std::memcpy(indices.data(), raw.data(), raw.size());
  for (int64_t& i : indices) i %= 4000;
  call(actzip_window_encode, indices, n, g, places, harness_threads);
  return 0;
}

int fuzz_mask(const uint8_t* bytes, size_t size) {
  Input in{bytes, size};
  choose_isa(in);
  const int64_t kind = in.below(5), item = kind == 4 ? 1 : ITEM[kind];  // the four floats, then bool
  const int64_t n = in.elements(40000, item);
  Bytes data(size_t((n + 7) / 8));
  Output out(size_t(n * item));
  if (in.below(2)) {
    data = in.fill(data.size() + size_t(in.below(2)));
    call(actzip_mask_decode, data, out, kind, n, in.number(8), harness_threads);
    return 0;
  }
  Bytes x = in.fill(size_t(n * item));
  if (kind == 4)
    for (uint8_t& b : x) b &= 1;
  require(call(actzip_mask_encode, x, kind, n, kind == 4 ? 0 : 1, 0, data, harness_threads) == 0, "encodes");
  require(call(actzip_mask_decode, data, out, kind, n, 1, harness_threads) == 0, "decodes");
  if (kind == 4) require(same(out, x), "a bool mask comes back exactly");
  return 0;
}

int fuzz_planes(const uint8_t* bytes, size_t size) {
  Input in{bytes, size};
  choose_isa(in);
  const int64_t n = in.below(4) ? in.below(500) : in.below(70000), bits = in.below(10);
  const int64_t fits = (n / 32 * 4 + (n % 32 + 7) / 8) * bits;
  Bytes codes(static_cast<size_t>(n)), data(static_cast<size_t>(fits));
  const auto unpack = [&] {
    return call(actzip_planes_unpack, data, n, bits, codes, harness_threads);
  };
  const bool sound = bits >= 1 && bits <= 8;
  if (in.below(2)) {  // the input is the payload, of a size that may be wrong
    const int64_t wrong = in.below(4) ? 0 : in.below(65) - 32;
    data = in.fill(size_t(fits + wrong < 0 ? 0 : fits + wrong));
    require((unpack() == 0) == (sound && int64_t(data.size()) == fits), "a size is checked");
    if (sound)
      for (uint8_t code : codes)
        if (code >> bits) require(false, "a code has no more than its bits");
    return 0;
  }
  const Bytes given = in.fill(size_t(n));
  const int64_t status = call(actzip_planes_pack, given, n, bits, data, harness_threads);
  require((status == 0) == sound, "bits are checked");
  if (!sound) return 0;
  require(unpack() == 0, "own bytes decode");
  for (size_t i = 0; i < given.size(); ++i)
    if (codes[i] != (given[i] & ((1 << bits) - 1))) require(false, "codes come back");
  return 0;
}
