// The C interface of the library, called as the binding calls it; see kernels/csrc/common/core.hpp.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

using Entry = int64_t(const uint8_t* words, int64_t count);

extern "C" {
int actzip_set_isa_level(int level);

Entry actzip_bounded_encode, actzip_bounded_gather, actzip_bounded_decode;
Entry actzip_bounded_count, actzip_bounded_squeeze, actzip_bounded_squeeze_gather;
Entry actzip_bounded_unsqueeze, actzip_entropy_count, actzip_entropy_encode;
Entry actzip_entropy_gather, actzip_entropy_decode, actzip_fixedpoint_range;
Entry actzip_fixedpoint_encode, actzip_fixedpoint_gather, actzip_fixedpoint_decode;
Entry actzip_group_nonzero, actzip_group_encode, actzip_group_raw;
Entry actzip_group_decode, actzip_dual_encode, actzip_dual_decode;
Entry actzip_dual_last_encode, actzip_dual_last_decode, actzip_index_range;
Entry actzip_index_encode, actzip_index_decode, actzip_planes_pack;
Entry actzip_planes_unpack, actzip_window_encode, actzip_window_decode;
Entry actzip_mask_encode, actzip_mask_decode, actzip_dithered_count;
Entry actzip_dithered_chosen, actzip_dithered_given;
Entry actzip_dithered_encode, actzip_dithered_gather, actzip_dithered_decode;
}

inline void pack(std::vector<int64_t>& words, const void* at, size_t bytes) {
  words.push_back(int64_t(reinterpret_cast<uintptr_t>(at)));
  words.push_back(int64_t(bytes));
}
template <class T, class A> void put(std::vector<int64_t>& words, const std::vector<T, A>& v) {
  pack(words, v.data(), v.size() * sizeof(T));
}
template <class T, size_t N> void put(std::vector<int64_t>& words, const T (&v)[N]) {
  pack(words, v, sizeof v);
}
template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
void put(std::vector<int64_t>& words, T v) {
  words.push_back(int64_t(v));
}

// An entry with its parameters: numbers, and vectors or arrays as their addresses and their bytes.
template <class... A> int64_t call(Entry* entry, const A&... args) {
  std::vector<int64_t> words;
  (put(words, args), ...);
  return entry(reinterpret_cast<const uint8_t*>(words.data()), int64_t(words.size()));
}
