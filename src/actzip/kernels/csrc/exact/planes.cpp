// Codes of 1 to 8 bits between one byte each and bit planes; see reference/planes.py.
#include "exact/planes.hpp"

ACTZIP_BEGIN

constexpr int64_t kPlaneChunk = 1 << 15;  // codes; a multiple of 32

int64_t planes_pack(Buffer<const uint8_t> codes, int64_t n, int64_t bits, Buffer<uint8_t> data,
                    int64_t threads) {
  if (bits < 1 || bits > 8 || !codes.holds(n, 1) || data.bytes != planes_size(n, int(bits))) return kBadArgument;
  parallel_for(ceil_div(n, kPlaneChunk), threads, [&](int64_t c) {
    const int64_t end = min_of(n, (c + 1) * kPlaneChunk);
    for (int64_t i = c * kPlaneChunk; i < end; i += 32) {
      const int64_t m = min_of<int64_t>(32, end - i);
      uint8_t last[32] = {};
      if (m < 32) std::memcpy(last, codes + i, size_t(m));
      const Bytes block = load_bytes(m < 32 ? last : codes + i);
      store_planes(block, first_bits(m), int(bits), m, data + i / 32 * 4 * bits);
    }
  });
  return kOk;
}

int64_t planes_unpack(Buffer<const uint8_t> data, int64_t n, int64_t bits, Buffer<uint8_t> codes,
                      int64_t threads) {
  if (!codes.holds(n, 1))
    return kBadArgument;
  if (bits < 1 || bits > 8 || n < 0 || data.bytes != planes_size(n, int(bits))) return kDamaged;
  parallel_for(ceil_div(n, kPlaneChunk), threads, [&](int64_t c) {
    const int64_t end = min_of(n, (c + 1) * kPlaneChunk);
    for (int64_t i = c * kPlaneChunk; i < end; i += 32) {
      const int64_t m = min_of<int64_t>(32, end - i);
      uint8_t block[32];
      store_bytes(block, load_planes(data + i / 32 * 4 * bits, int(bits), m));
      std::memcpy(codes + i, block, size_t(m));
    }
  });
  return kOk;
}

ACTZIP_END

ACTZIP_ENTRY(planes_pack)
ACTZIP_ENTRY(planes_unpack)
