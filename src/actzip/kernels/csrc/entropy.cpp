// Entries of the entropy stage for codes of one byte: count, encode, gather, decode.
//
// The codes go in spans of 65536; as in bounded.cpp a finished span waits in the workspace until
// all sizes are known, or is coded again straight into its place.
#include "entropy_rans.hpp"

ACTZIP_BEGIN

// counts[256] of n codes.
int64_t entropy_count(const uint8_t* codes, int64_t n, int64_t* counts, int64_t threads) {
  using namespace entropy;
  for (int s = 0; s < 256; ++s) counts[s] = 0;
  parallel_for(ceil_div(n, SPAN), threads, [&](int64_t c) {
    // four histograms: runs of equal codes would wait for each other's store
    uint32_t found[4][256] = {};
    const int64_t end = min_of(n, (c + 1) * SPAN);
    for (int64_t i = c * SPAN; i < end; ++i) ++found[i & 3][codes[i]];
    for (int s = 0; s < 256; ++s)
      atomic_add(counts + s, int64_t(found[0][s]) + found[1][s] + found[2][s] + found[3][s]);
  });
  return kOk;
}

// sizes and place per span; returns the sum of the sizes. Codes of frequency 0 must not occur.
int64_t entropy_encode(const uint8_t* codes, int64_t n, const uint16_t* frequency, int64_t* sizes,
                       int64_t* place, uint8_t* workspace, int64_t room, int64_t threads) {
  using namespace entropy;
  EncodeTable table;
  make_encode(frequency, table);
  int64_t used = 0;
  parallel_for(ceil_div(n, SPAN), threads, [&](int64_t c) {
    alignas(64) uint8_t bytes[SPAN_ROOM];
    uint8_t* const end = bytes + SPAN_ROOM;
    const uint8_t* const begin =
        encode_span(codes + c * SPAN, min_of(SPAN, n - c * SPAN), table, end);
    sizes[c] = end - begin;
    const int64_t at = __atomic_fetch_add(&used, sizes[c], __ATOMIC_RELAXED);
    place[c] = at + sizes[c] <= room ? at : -1;
    if (place[c] >= 0) std::memcpy(workspace + at, begin, size_t(sizes[c]));
  });
  return used;
}

// Turns sizes into the table of offsets (uint64 each) and puts all spans in order into `data`.
int64_t entropy_gather(const uint8_t* codes, int64_t n, const uint16_t* frequency,
                       const int64_t* sizes, const int64_t* place, const uint8_t* workspace,
                       uint8_t* offsets, uint8_t* data, int64_t threads) {
  using namespace entropy;
  EncodeTable table;
  make_encode(frequency, table);
  const int64_t spans = ceil_div(n, SPAN);
  for (int64_t c = 0, offset = 0; c < spans; offset += sizes[c++]) store_as(offsets + 8 * c, offset);
  parallel_for(spans, threads, [&](int64_t c) {
    uint8_t* const to = data + load_as<int64_t>(offsets + 8 * c);
    if (place[c] >= 0) {
      std::memcpy(to, workspace + place[c], size_t(sizes[c]));
      return;
    }
    alignas(64) uint8_t bytes[SPAN_ROOM];
    encode_span(codes + c * SPAN, min_of(SPAN, n - c * SPAN), table, bytes + SPAN_ROOM);
    std::memcpy(to, bytes + SPAN_ROOM - sizes[c], size_t(sizes[c]));
  });
  return kOk;
}

int64_t entropy_decode(const uint8_t* offsets, const uint8_t* data, int64_t length,
                       const uint16_t* frequency, int64_t n, uint8_t* codes, int64_t threads) {
  using namespace entropy;
  DecodeTable table;
  if (!make_decode(frequency, table)) return kDamaged;
  const int64_t spans = ceil_div(n, SPAN);
  int64_t damaged = 0;
  parallel_for(spans, threads, [&](int64_t c) {
    const int64_t begin = load_as<int64_t>(offsets + 8 * c);
    const int64_t end = c + 1 < spans ? load_as<int64_t>(offsets + 8 * (c + 1)) : length;
    const bool fits = 0 <= begin && begin <= end && end <= length;
    const int64_t count = min_of(SPAN, n - c * SPAN);
    if (!fits || !decode_span(data + begin, data + end, count, table, codes + c * SPAN))
      atomic_add(&damaged, 1);
  });
  return damaged ? kDamaged : kOk;
}

ACTZIP_END

ACTZIP_ENTRY(entropy_count,
             (const uint8_t* codes, int64_t n, int64_t* counts, int64_t threads),
             (codes, n, counts, threads))
ACTZIP_ENTRY(entropy_encode,
             (const uint8_t* codes, int64_t n, const uint16_t* frequency, int64_t* sizes,
              int64_t* place, uint8_t* workspace, int64_t room, int64_t threads),
             (codes, n, frequency, sizes, place, workspace, room, threads))
ACTZIP_ENTRY(entropy_gather,
             (const uint8_t* codes, int64_t n, const uint16_t* frequency, const int64_t* sizes,
              const int64_t* place, const uint8_t* workspace, uint8_t* offsets, uint8_t* data,
              int64_t threads),
             (codes, n, frequency, sizes, place, workspace, offsets, data, threads))
ACTZIP_ENTRY(entropy_decode,
             (const uint8_t* offsets, const uint8_t* data, int64_t length,
              const uint16_t* frequency, int64_t n, uint8_t* codes, int64_t threads),
             (offsets, data, length, frequency, n, codes, threads))
