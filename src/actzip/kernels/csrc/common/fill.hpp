// 32 bits to 32 elements: `on` where the bit is set, else 0. `stream`: past the caches, if the type
// fills whole lines; end_stream() follows the last.
#pragma once

#include "common/simd.hpp"

ACTZIP_BEGIN

ACTZIP_INLINE void fill32(uint8_t* out, uint32_t word, uint8_t, bool) {
  store_bytes(out, or_plane(zero_bytes(), word, 0));
}
template <class T>
ACTZIP_INLINE void fill32(T* out, uint32_t word, T on, bool stream) {
  const F value = set1(widen(on));
  const Block block = map(to_floats(or_plane(zero_bytes(), word, 0)),
                          [&](F bit) { return where_nonzero(bit, value); });
  stream ? stream32(out, block) : store32(out, block);
}
ACTZIP_INLINE void fill32(double* out, uint32_t word, double on, bool) {
  for (int i = 0; i < 32; ++i) out[i] = word >> i & 1 ? on : 0.0;
}

// The same for m < 32 elements.
template <class T>
ACTZIP_INLINE void fill_some(T* out, uint32_t word, T on, int64_t m) {
  for (int64_t i = 0; i < m; ++i) out[i] = word >> i & 1 ? on : T{};
}

ACTZIP_END
