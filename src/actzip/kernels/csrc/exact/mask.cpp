// BitMask: one bit per element, element i in bit i % 8 of byte i / 8.
#include "common/fill.hpp"

ACTZIP_BEGIN

constexpr int64_t kMaskChunk = 1 << 16;  // elements; a multiple of 32

enum Test : int64_t { kNonzero = 0, kNotLeZero = 1, kEqualsOn = 2 };

// 32 elements (n < 32 at the tail) to one word; sets bad when kEqualsOn meets a third value.
struct BoolTest {
  uint32_t word(const uint8_t* x, bool&) const { return nonzero_bytes(load_bytes(x)); }
  bool one(uint8_t x, bool&) const { return x != 0; }
};

template <class T>
struct NotLeZero {
  uint32_t word(const T* x, bool&) const {
    return bits32(load32(x), [](F a) { return bits_not_le_zero(a); });
  }
  bool one(T x, bool&) const { return !(widen(x) <= 0); }
};

template <>
uint32_t NotLeZero<double>::word(const double* x, bool&) const {
  uint32_t r = 0;
  for (int i = 0; i < 32; ++i) r |= uint32_t(!(x[i] <= 0)) << i;
  return r;
}

template <class T, class Bits>
struct EqualsOn {
  Bits on;
  uint32_t word(const T* x, bool& bad) const {
    uint32_t r = 0;
    for (int i = 0; i < 32; ++i) r |= uint32_t(one(x[i], bad)) << i;
    return r;
  }
  bool one(T x, bool& bad) const {
    const Bits b = bit_cast<Bits>(x);
    bad |= b != on && b != 0;
    return b == on;
  }
};

template <>
uint32_t EqualsOn<float, uint32_t>::word(const float* x, bool& bad) const {
  const F c = set1(bit_cast<float>(on)), zero = set1(0.0f);
  const Block b = load32(x);
  const uint32_t is_on = bits32(b, [&](F a) { return bits_same(a, c); });
  const uint32_t is_off = bits32(b, [&](F a) { return bits_same(a, zero); });
  bad |= (is_on | is_off) != 0xffffffffu;
  return is_on;
}

template <class T, class Op>
int64_t encode_as(const T* x, int64_t n, uint8_t* data, Op op, int64_t threads) {
  int64_t bad_chunks = 0;
  parallel_for(ceil_div(n, kMaskChunk), threads, [&](int64_t c) {
    const int64_t end = min_of(n, (c + 1) * kMaskChunk);
    int64_t i = c * kMaskChunk;
    bool bad = false;
    const T* const from = x;  // read once: a store of bytes may alias what the lambda holds
    uint8_t* const to = data;
    const Op test = op;
    for (; i + 32 <= end; i += 32) store_as<uint32_t>(to + i / 8, test.word(from + i, bad));
    for (; i < end; i += 8) {
      uint8_t byte = 0;
      for (int64_t k = i; k < min_of(end, i + 8); ++k) byte |= uint8_t(test.one(from[k], bad) << (k - i));
      to[i / 8] = byte;
    }
    atomic_add(&bad_chunks, bad);
  });
  return bad_chunks ? kBadValue : kOk;
}

int64_t mask_encode(Buffer<const void> x, int64_t dtype, int64_t n, int64_t test, uint64_t on,
                    Buffer<uint8_t> data, int64_t threads) {
  if (!x.holds(n, itemsize(dtype)) ||
      !data.holds(ceil_div(n, 8), 1))
    return kBadArgument;
  if (test == kNonzero)
    return encode_as(x.as<const uint8_t>(), n, data, BoolTest{}, threads);
  return with_float(dtype, [&](auto zero) -> int64_t {
    using T = decltype(zero);
    const T* p = x.as<const T>();
    if (test == kNotLeZero) return encode_as(p, n, data, NotLeZero<T>{}, threads);
    if constexpr (sizeof(T) == 8) return encode_as(p, n, data, EqualsOn<T, uint64_t>{on}, threads);
    else if constexpr (sizeof(T) == 4)
      return encode_as(p, n, data, EqualsOn<T, uint32_t>{uint32_t(on)}, threads);
    else return encode_as(p, n, data, EqualsOn<T, uint16_t>{uint16_t(on)}, threads);
  });
}

template <class T>
int64_t decode_as(const uint8_t* data, T* out, int64_t n, T on, int64_t threads) {
  const bool stream = beyond_caches(n * int64_t(sizeof(T))) && can_stream(out);
  parallel_for(ceil_div(n, kMaskChunk), threads, [&](int64_t c) {
    const int64_t end = min_of(n, (c + 1) * kMaskChunk);
    int64_t i = c * kMaskChunk;
    for (; i + 32 <= end; i += 32) fill32(out + i, load_as<uint32_t>(data + i / 8), on, stream);
    if (stream) end_stream();
    for (; i < end; ++i) out[i] = data[i / 8] >> (i % 8) & 1 ? on : T{};
  });
  return kOk;
}

// `on` holds the bits of the value that a set bit decodes to; 1 for bool.
int64_t mask_decode(Buffer<const uint8_t> data, Buffer<void> out, int64_t dtype, int64_t n,
                    uint64_t on, int64_t threads) {
  if (!out.holds(n, itemsize(dtype))) return kBadArgument;
  if (data.bytes != ceil_div(n, 8)) return kDamaged;
  if (dtype == kU8) return decode_as(data, out.as<uint8_t>(), n, uint8_t(1), threads);
  return with_float(dtype, [&](auto zero) -> int64_t {
    using T = decltype(zero);
    T value;
    std::memcpy(&value, &on, sizeof value);  // little-endian: the low bytes
    return decode_as(data, out.as<T>(), n, value, threads);
  });
}

ACTZIP_END

ACTZIP_ENTRY(mask_encode)
ACTZIP_ENTRY(mask_decode)
