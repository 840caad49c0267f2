// Index: integers as (x - min), `bits` bits each, one dense little-endian stream of bits.
#include "common/core.hpp"

ACTZIP_BEGIN

constexpr int64_t kIndexChunk = 1 << 15;  // elements; a multiple of 8, so chunks start on bytes

template <class F>
inline int64_t with_int(int64_t dtype, F&& f) {
  switch (dtype) {
    case kU8: return f(uint8_t{});
    case kI8: return f(int8_t{});
    case kI16: return f(int16_t{});
    case kU16: return f(uint16_t{});
    case kI32: return f(int32_t{});
    case kU32: return f(uint32_t{});
    case kI64: return f(int64_t{});
    default: return kBadArgument;  // uint64 comes as int64: only the difference matters
  }
}

// The same for what does not ask for the sign: differences are taken modulo the type's size.
template <class F>
inline int64_t with_unsigned(int64_t dtype, F&& f) {
  switch (dtype) {
    case kU8: case kI8: return f(uint8_t{});
    case kI16: case kU16: return f(uint16_t{});
    case kI32: case kU32: return f(uint32_t{});
    case kI64: return f(uint64_t{});
    default: return kBadArgument;
  }
}

// Bytes of n values of `bits` bits.
inline int64_t packed_bytes(int64_t n, int64_t bits) {
  return int64_t((uint64_t(n) * uint64_t(bits) + 7) / 8);
}

// lohi[0], lohi[1]: the least and the largest value.
int64_t index_range(Buffer<const void> x, int64_t dtype, int64_t n, Buffer<int64_t> lohi,
                    int64_t threads) {
  if (!x.holds(n, itemsize(dtype)) ||
      !lohi.holds(2, 8))
    return kBadArgument;
  if (n <= 0) return kBadArgument;
  return with_int(dtype, [&](auto zero) -> int64_t {
    using T = decltype(zero);
    const T* p = x.as<const T>();
    int64_t lo = int64_t(p[0]), hi = lo;
    parallel_for(ceil_div(n, kIndexChunk), threads, [&](int64_t c) {
      T a = p[c * kIndexChunk], b = a;
      for (int64_t i = c * kIndexChunk; i < min_of(n, (c + 1) * kIndexChunk); ++i) {
        a = min_of(a, p[i]);
        b = max_of(b, p[i]);
      }
      atomic_lower(&lo, int64_t(a));
      atomic_raise(&hi, int64_t(b));
    });
    lohi[0] = lo;
    lohi[1] = hi;
    return kOk;
  });
}

// Writes values of `bits` (1…64) bits one after another.
struct BitWriter {
  uint8_t* p;
  unsigned __int128 held = 0;
  int count = 0;
  inline void put(uint64_t v, int bits) {
    held |= static_cast<unsigned __int128>(v) << count;
    count += bits;
    if (count >= 64) {
      store_as<uint64_t>(p, uint64_t(held));
      p += 8;
      held >>= 64;
      count -= 64;
    }
  }
  inline void finish() {
    for (; count > 0; count -= 8, held >>= 8) *p++ = uint8_t(held);
  }
};

// The value of `bits` bits at position `at`, reading no byte at or after `size`.
inline uint64_t get_bits(const uint8_t* data, int64_t size, uint64_t at, int bits, uint64_t mask) {
  const int64_t byte = int64_t(at >> 3);
  const int shift = int(at & 7);
  if (byte + 8 <= size && shift + bits <= 64) return load_as<uint64_t>(data + byte) >> shift & mask;
  uint64_t low = 0, high = 0;
  const int64_t left = size - byte;
  std::memcpy(&low, data + byte, size_t(min_of<int64_t>(8, left)));
  if (left > 8) high = data[byte + 8];
  return (shift ? low >> shift | high << (64 - shift) : low) & mask;
}

inline uint64_t mask_of(int bits) { return bits == 64 ? ~0ull : (1ull << bits) - 1; }

// The same for bits <= 32, twice as fast: the held bits fit a register.
struct ShortBitWriter {
  uint8_t* p;
  uint64_t held = 0;
  int count = 0;
  inline void put(uint64_t v, int bits) {
    held |= v << count;
    count += bits;
    if (count >= 32) {
      store_as<uint32_t>(p, uint32_t(held));
      p += 4;
      held >>= 32;
      count -= 32;
    }
  }
  inline void finish() {
    for (; count > 0; count -= 8, held >>= 8) *p++ = uint8_t(held);
  }
};

// The first of n values of up to 8 bits, eight at a time; returns how many. A word is written at
// once: what lies behind its `bits` bytes belongs to the next eight, or the loop ends before.
template <class B, class T>
inline int64_t write_words(B bits, const T* x, int64_t n, uint64_t lo, uint8_t* out) {
  int64_t i = 0;
  for (; (n - i) * bits >= 64; i += 8, out += bits) {
    uint64_t word = 0;
    for (int j = 0; j < 8; ++j) word |= uint64_t(T(x[i + j] - T(lo))) << (j * bits);
    store_as<uint64_t>(out, word);
  }
  return i;
}

// The same for reading: words that end before `in` does, at `size`.
template <class B, class T>
inline int64_t read_words(B bits, const uint8_t* in, int64_t size, int64_t n, uint64_t lo, T* out) {
  const uint64_t mask = (1u << bits) - 1;
  int64_t i = 0;
  for (; i + 8 <= n && i / 8 * bits + 8 <= size; i += 8) {
    const uint64_t word = load_as<uint64_t>(in + i / 8 * bits);
    for (int j = 0; j < 8; ++j) out[i + j] = T((word >> (j * bits) & mask) + lo);
  }
  return i;
}

template <class Writer, class T>
inline void write_bits(const T* x, int64_t n, uint64_t lo, int bits, uint8_t* out) {
  Writer writer{out};
  for (int64_t i = 0; i < n; ++i) writer.put(uint64_t(T(x[i] - T(lo))), bits);
  writer.finish();
}

int64_t index_encode(Buffer<const void> x, int64_t dtype, int64_t n, int64_t lo, int64_t bits,
                     Buffer<uint8_t> data, int64_t threads) {
  if (bits < 1 || bits > 64 || !x.holds(n, itemsize(dtype)) ||
      data.bytes != packed_bytes(n, bits))
    return kBadArgument;
  return with_unsigned(dtype, [&](auto zero) -> int64_t {
    using T = decltype(zero);
    const T* p = x.as<const T>();
    parallel_for(ceil_div(n, kIndexChunk), threads, [&](int64_t c) {
      int64_t first = c * kIndexChunk, count = min_of(n - first, kIndexChunk);
      if (bits <= 8) {
        const int64_t done = with_bits(int(bits), [&](auto width) {
          return write_words(width, p + first, count, uint64_t(lo), data + first / 8 * bits);
        });
        first += done, count -= done;
      }
      uint8_t* to = data + first / 8 * bits;
      bits <= 32 ? write_bits<ShortBitWriter>(p + first, count, uint64_t(lo), int(bits), to)
                 : write_bits<BitWriter>(p + first, count, uint64_t(lo), int(bits), to);
    });
    return kOk;
  });
}

int64_t index_decode(Buffer<const uint8_t> data, Buffer<void> out, int64_t dtype, int64_t n,
                     int64_t lo, int64_t bits, int64_t threads) {
  if (bits < 1 || bits > 64 || n < 0 || uint64_t(n) > uint64_t(INT64_MAX) / 64) return kDamaged;
  if (!out.holds(n, itemsize(dtype))) return kBadArgument;
  if (data.bytes != packed_bytes(n, bits)) return kDamaged;
  const int64_t size = data.bytes;
  const uint64_t mask = mask_of(int(bits));
  return with_unsigned(dtype, [&](auto zero) -> int64_t {
    using T = decltype(zero);
    T* p = out.as<T>();
    parallel_for(ceil_div(n, kIndexChunk), threads, [&](int64_t c) {
      const int64_t first = c * kIndexChunk, end = min_of(n, first + kIndexChunk);
      int64_t i = first;
      if (bits <= 8) {
        const int64_t start = first / 8 * bits;
        i += with_bits(int(bits), [&](auto width) {
          return read_words(width, data + start, size - start, end - first, uint64_t(lo), p + i);
        });
      }
      for (; i < end; ++i)
        p[i] = T(get_bits(data, size, uint64_t(i) * uint64_t(bits), int(bits), mask) + uint64_t(lo));
    });
    return kOk;
  });
}

ACTZIP_END

ACTZIP_ENTRY(index_range)
ACTZIP_ENTRY(index_encode)
ACTZIP_ENTRY(index_decode)
