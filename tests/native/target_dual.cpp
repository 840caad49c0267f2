// Dual, with its maps one after the other or side by side: what is encoded decodes; damaged bytes
// give a status.
#include "input.hpp"

namespace {

struct Case {
  int64_t maps, channels, dtype, rounding, zero, sides[3], block, original;  // channels 0: one by one
  uint64_t seed;
  int64_t elements = 1, means = 1;
  Bytes bits, averages, data, scratch;
  Output out;
  std::vector<int64_t> offsets;

  // Room for a thread, as native/dual.py gives it.
  int64_t room() const {
    const int64_t width = sides[2], rows = block < sides[1] ? block : sides[1];
    if (channels) {
      const int64_t tile = channels % 32 ? channels : 32;
      return tile * (elements + 2 * width + means) + 5 * (tile + 32);
    }
    const int64_t per = 16384 / (32 * elements), chunk = elements % 32 ? 32 * (per > 1 ? per : 1) : 1;
    const int64_t stretch = (width < 48 ? rows : 1) * width, spread = stretch > width + 32 ? stretch : width + 32;
    return chunk * elements + 2 * ((width + 15) / 16 * 16) + spread;
  }

  int64_t encode(const Bytes& x) {
    if (channels)
      return call(actzip_dual_last_encode, x, dtype, maps / channels, channels, sides[0],
                  sides[1], sides[2], block, original, bits, offsets, rounding, zero, seed,
                  averages, data, scratch, harness_threads);
    return call(actzip_dual_encode, x, dtype, maps, sides[0], sides[1], sides[2], block,
                original, bits, offsets, rounding, zero, seed, averages, data, scratch,
                harness_threads);
  }

  int64_t decode() {
    if (channels)
      return call(actzip_dual_last_decode, averages, data, out, dtype, maps / channels,
                  channels, sides[0], sides[1], sides[2], block, original, bits, offsets,
                  rounding, zero, seed, scratch, harness_threads);
    return call(actzip_dual_decode, averages, data, out, dtype, maps, sides[0], sides[1],
                sides[2], block, original, bits, offsets, rounding, zero, seed, scratch,
                harness_threads);
  }
};

Case read_case(Input& in) {
  choose_isa(in);
  Case c;
  c.channels = in.below(2) ? 1 + in.below(70) : 0;
  int64_t samples = 1 + in.below(c.channels ? 3 : 20);
  c.dtype = in.below(4), c.rounding = in.below(3), c.zero = in.below(2);
  for (int64_t& side : c.sides) side = 1 + in.below(c.channels ? 8 : 30);
  c.sides[0] = 1 + c.sides[0] % 3;
  c.block = 1 + in.below(12), c.original = in.below(2), c.seed = in.number(8);
  for (int64_t side : c.sides) {
    const int64_t edge = c.block < side ? c.block : side;
    c.elements *= side;
    c.means *= c.original ? side / edge : (side + edge - 1) / edge;
  }
  const int64_t sample = c.elements * (c.channels ? c.channels : 1);
  samples = (in.elements(samples * sample, ITEM[c.dtype]) + sample - 1) / sample;
  samples = samples > 0 ? samples : 1;
  c.maps = samples * (c.channels ? c.channels : 1);
  const uint8_t bits = uint8_t(1 + in.below(8));
  c.bits.assign(size_t(c.channels ? samples : 1), c.zero && bits == 1 ? 2 : bits);
  const int64_t row = c.elements * (c.channels ? c.channels : c.maps);
  c.offsets = row_offsets(row, c.elements, c.dtype, c.bits);
  c.averages.resize(size_t(c.maps * c.means * real_size(c.dtype) / 2));
  c.out.resize(size_t(c.maps * c.elements * ITEM[c.dtype]));
  c.scratch.resize(size_t(harness_threads * c.room() * real_size(c.dtype)));
  return c;
}

}  // namespace

int fuzz_dual(const uint8_t* bytes, size_t size) {
  Input in{bytes, size};
  Case c = read_case(in);
  if (in.below(2)) {  // the input is the payload
    c.averages = in.fill(c.averages.size());
    c.data = in.fill(size_t(c.offsets.back() + (in.below(3) == 0 ? in.below(64) : 0)));
    c.decode();
    return 0;
  }
  Input later = in;
  const int64_t n = c.maps * c.elements;
  const Bytes x = values(in, n, c.dtype);
  c.data.resize(size_t(c.offsets.back()));
  const int64_t raw = c.encode(x);
  require(raw >= 0, "encodes");
  c.data.resize(c.data.size() + size_t(raw * ITEM[c.dtype]));
  if (c.channels == 0)  // of maps side by side the binding itself keeps the raw ones
    call(actzip_group_raw, x, c.dtype, 1, n, c.elements, c.bits, c.offsets, c.data);
  require(c.decode() == (c.channels ? raw : 0), "own bytes decode");
  if (damage(later, c.data) | damage(later, c.averages)) c.decode();
  return 0;
}
