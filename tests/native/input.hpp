// What all targets share: reading choices and values from the fuzzer's bytes.
//
// Buffers are vectors of exactly the size that the bindings would give, so that the sanitizer sees
// a single byte too much. `harness_threads` is 1 under a fuzzer and 4 in the check program.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "entries.hpp"

using Bytes = std::vector<uint8_t>;

// Memory on whole cache lines: what is written past the caches is.
template <class T> struct Lines {
  using value_type = T;
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64))); }
  void deallocate(T* p, size_t) { ::operator delete(p, std::align_val_t(64)); }
  bool operator==(const Lines&) const { return true; }
  bool operator!=(const Lines&) const { return false; }
};
using Output = std::vector<uint8_t, Lines<uint8_t>>;

inline bool same(const Output& a, const Bytes& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

extern int64_t harness_threads;

inline void require(bool fact, const char* what) {
  if (fact) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

struct Input {
  const uint8_t* at;
  size_t left;

  uint64_t number(int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes && left > 0; ++i, ++at, --left) value |= uint64_t{*at} << (8 * i);
    return value;
  }
  int64_t below(int64_t limit) { return int64_t(number(4) % uint64_t(limit)); }

  // How many elements: mostly few, now and then above a megabyte, which is written past the caches.
  int64_t elements(int64_t usual, int64_t item) {
    return below(64) ? below(usual) : (int64_t(1) << 20) / item + below(100000);
  }

  // The rest of the input, repeated as often as needed.
  Bytes fill(size_t size) {
    Bytes out(size);
    for (size_t done = 0; left && done < size; done += left)
      std::memcpy(out.data() + done, at, size - done < left ? size - done : left);
    return out;
  }
  // The rest of the input, as it is.
  Bytes rest() { return Bytes(at, at + left); }
};

constexpr int64_t ITEM[4] = {4, 2, 2, 8};  // float32, bfloat16, float16, float64

inline int64_t real_size(int64_t dtype) { return dtype == 3 ? 8 : 4; }

inline void put_real(Bytes& to, size_t index, int64_t dtype, double value) {
  const float single = float(value);
  if (dtype == 3) std::memcpy(to.data() + 8 * index, &value, 8);
  else std::memcpy(to.data() + 4 * index, &single, 4);
}

// n values: any bits at all, or tame ones (small multiples of 1/64, half of them zero).
inline Bytes values(Input& in, int64_t n, int64_t dtype) {
  const bool wild = in.number(1) & 1;
  Bytes out = in.fill(size_t(n * ITEM[dtype]));
  if (wild || dtype == 1 || dtype == 2) return out;
  for (int64_t i = 0; i < n; ++i) {
    const int8_t small = int8_t(out[size_t(i * ITEM[dtype])]);
    const double tame = small > 0 ? small / 64.0 : 0;
    put_real(out, size_t(i), dtype, tame);
  }
  return out;
}

// Flips or cuts what the input says; false when it asks for no damage.
inline bool damage(Input& in, Bytes& bytes) {
  const int64_t flips = in.below(4);
  for (int64_t k = 0; k < flips && !bytes.empty(); ++k)
    bytes[size_t(in.below(int64_t(bytes.size())))] ^= uint8_t(in.number(1) | 1);
  return flips > 0;
}

// A table of 256 frequencies that sum to 4096, none above 4095; `always` has at least 1.
inline std::vector<uint16_t> frequencies(Input& in, size_t always) {
  std::vector<uint16_t> found(256, 0);
  found[always] = 1;
  for (int left = 4095; left > 0;) {
    size_t symbol = size_t(in.below(256));
    if (found[symbol] == 4095) symbol = (symbol + 1) % 256;
    const int part = 1 + int(in.below(left)), room = 4095 - found[symbol];
    found[symbol] = uint16_t(found[symbol] + (part < room ? part : room));
    left -= part < room ? part : room;
  }
  return found;
}

// Where the codes of each sample of a group payload begin, after the metadata of all groups, and
// where the last ones end.
inline std::vector<int64_t> row_offsets(int64_t n, int64_t group, int64_t dtype, const Bytes& bits) {
  const int64_t groups = (n + group - 1) / group, item = dtype == 3 ? 4 : 2;
  std::vector<int64_t> at{2 * int64_t(bits.size()) * groups * item};
  for (uint8_t b : bits) at.push_back(at.back() + (n / 32 * 4 + (n % 32 + 7) / 8) * b);
  return at;
}

// Where spans of these sizes begin.
inline std::vector<int64_t> offsets_of(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> begin;
  int64_t at = 0;
  for (int64_t size : sizes) {
    begin.push_back(at);
    at += size;
  }
  return begin;
}

// The same for integers: flips a bit of one, or makes it any number.
inline bool damage(Input& in, std::vector<int64_t>& numbers) {
  if (numbers.empty() || in.below(4)) return false;
  int64_t& number = numbers[size_t(in.below(int64_t(numbers.size())))];
  number = in.below(2) ? number ^ int64_t(1) << in.below(64) : int64_t(in.number(8));
  return true;
}

inline void choose_isa(Input& in) { actzip_set_isa_level(int(in.number(1) % 3)); }
