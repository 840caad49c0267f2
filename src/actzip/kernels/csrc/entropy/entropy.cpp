// Entries of the entropy stage for codes of one byte: count, encode, gather, decode.
//
// As in bounded.cpp a finished span waits in the workspace until all sizes are known, or is coded
// again straight into its place.
#include "entropy/rans.hpp"

ACTZIP_BEGIN

// counts[256] of n codes.
int64_t entropy_count(Buffer<const uint8_t> codes, int64_t n, Buffer<int64_t> counts,
                      int64_t threads) {
  using namespace entropy;
  if (!codes.holds(n, 1) ||
      !counts.holds(256, 8))
    return kBadArgument;
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

// Codes chain k from its last span on; f(span, begin, end) gets the bytes of each.
template <class F>
inline void encode_chain(const uint8_t* codes, int64_t n, const entropy::EncodeTable& table,
                         int64_t chain, int64_t k, F&& f) {
  using namespace entropy;
  States states;
  alignas(64) uint8_t bytes[SPAN_ROOM];
  uint8_t* const end = bytes + SPAN_ROOM;
  for (int64_t c = min_of(ceil_div(n, SPAN), (k + 1) * chain) - 1; c >= k * chain; --c) {
    uint8_t* at = encode_span(codes + c * SPAN, min_of(SPAN, n - c * SPAN), table, states, end);
    if (c == k * chain) at = states.store(at);
    f(c, at, end);
  }
}

// sizes and place per span; returns the sum of the sizes. Codes of frequency 0 must not occur.
int64_t entropy_encode(Buffer<const uint8_t> codes, int64_t n, Buffer<const uint16_t> frequency,
                       int64_t chain, Buffer<int64_t> sizes, Buffer<int64_t> place,
                       Buffer<uint8_t> workspace, int64_t threads) {
  using namespace entropy;
  if (!codes.holds(n, 1) ||
      !frequency.holds(256, 2) ||
      !sizes.holds(ceil_div(n, SPAN), 8) ||
      !place.holds(ceil_div(n, SPAN), 8))
    return kBadArgument;
  if (chain < 1 || chain > MAX_CHAIN) return kBadArgument;
  EncodeTable table;
  make_encode(frequency, table);
  int64_t used = 0;
  parallel_for(ceil_div(n, SPAN * chain), threads, [&](int64_t k) {
    encode_chain(codes, n, table, chain, k, [&](int64_t c, const uint8_t* begin, const uint8_t* end) {
      sizes[c] = end - begin;
      const int64_t at = __atomic_fetch_add(&used, sizes[c], __ATOMIC_RELAXED);
      place[c] = at + sizes[c] <= workspace.bytes ? at : -1;
      if (place[c] >= 0 && sizes[c] > 0) std::memcpy(workspace + at, begin, size_t(sizes[c]));
    });
  });
  return used;
}

// Whether spans of these sizes lie in the workspace, if they have a place there, and in the payload.
inline bool gathers(const int64_t* sizes, const int64_t* place, const int64_t* offsets, int64_t spans,
                    int64_t room, int64_t bytes) {
  for (int64_t c = 0; c < spans; ++c) {
    if (sizes[c] < 0 || sizes[c] > entropy::SPAN_ROOM) return false;
    if (place[c] >= 0 && place[c] > room - sizes[c]) return false;
    if (offsets[c] < 0 || offsets[c] > bytes - sizes[c]) return false;
  }
  return true;
}

// Puts all spans in order into `data`: those in the workspace as they are, chains of which one
// found no room there once more from the codes. `offsets`: where each span begins.
int64_t entropy_gather(Buffer<const uint8_t> codes, int64_t n, Buffer<const uint16_t> frequency,
                       int64_t chain, Buffer<const int64_t> sizes, Buffer<const int64_t> place,
                       Buffer<const uint8_t> workspace, Buffer<const int64_t> offsets,
                       Buffer<uint8_t> data, int64_t threads) {
  using namespace entropy;
  if (!codes.holds(n, 1) ||
      !frequency.holds(256, 2) ||
      !sizes.holds(ceil_div(n, SPAN), 8) ||
      !place.holds(ceil_div(n, SPAN), 8) ||
      !offsets.holds(ceil_div(n, SPAN), 8) ||
      !gathers(sizes, place, offsets, ceil_div(n, SPAN), workspace.bytes, data.bytes))
    return kBadArgument;
  if (chain < 1 || chain > MAX_CHAIN) return kBadArgument;
  EncodeTable table;
  make_encode(frequency, table);
  const int64_t spans = ceil_div(n, SPAN);
  parallel_for(ceil_div(spans, chain), threads, [&](int64_t k) {
    bool ready = true;
    for (int64_t c = k * chain; c < min_of(spans, (k + 1) * chain); ++c) ready &= place[c] >= 0;
    const auto put = [&](int64_t c, const uint8_t* begin, const uint8_t*) {
      if (sizes[c] > 0) std::memcpy(data + offsets[c], begin, size_t(sizes[c]));
    };
    if (!ready) return encode_chain(codes, n, table, chain, k, put);
    for (int64_t c = k * chain; c < min_of(spans, (k + 1) * chain); ++c)
      put(c, workspace + place[c], nullptr);
  });
  return kOk;
}

// Codes of `count` chains from k on, one or two; false for bytes that no encoder writes.
inline bool decode_chains(const int64_t* offsets, const uint8_t* data, int64_t length, int64_t n,
                          const entropy::DecodeTable& table, int64_t chain, int64_t k, int count,
                          uint8_t* codes) {
  using namespace entropy;
  const int64_t spans = ceil_div(n, SPAN);
  States states[2];
  for (int64_t j = 0; j < chain; ++j) {
    Words words[2];
    int open = 0;
    for (; open < count && (k + open) * chain + j < spans; ++open) {
      const int64_t c = (k + open) * chain + j;
      const int64_t begin = offsets[c], end = c + 1 < spans ? offsets[c + 1] : length;
      if (begin < 0 || begin > end || end > length) return false;
      const uint8_t* at = data + begin;
      if (j == 0) at = states[open].load(at, data + end);
      if (!at) return false;
      words[open] = {at, data + end, min_of(SPAN, n - c * SPAN), codes + c * SPAN, &states[open]};
    }
    if (!decode_spans(words, open, table)) return false;
  }
  return states[0].at_rest() && states[1].at_rest();
}

int64_t entropy_decode(Buffer<const int64_t> offsets, Buffer<const uint8_t> data,
                       Buffer<const uint16_t> frequency, int64_t chain, int64_t n,
                       Buffer<uint8_t> codes, int64_t threads) {
  using namespace entropy;
  if (!codes.holds(n, 1) ||
      !frequency.holds(256, 2) ||
      !offsets.holds(ceil_div(n, SPAN), 8))
    return kBadArgument;
  DecodeTable table;
  if (chain < 1 || chain > MAX_CHAIN || !make_decode(frequency, table)) return kDamaged;
  const int64_t chains = ceil_div(n, SPAN * chain), together = side_by_side(chains, threads);
  int64_t damaged = 0;
  parallel_for(ceil_div(chains, together), threads, [&](int64_t i) {
    const int count = int(min_of(together, chains - i * together));
    if (!decode_chains(offsets, data, data.bytes, n, table, chain, i * together, count, codes))
      atomic_add(&damaged, 1);
  });
  return damaged ? kDamaged : kOk;
}

ACTZIP_END

ACTZIP_ENTRY(entropy_count)
ACTZIP_ENTRY(entropy_encode)
ACTZIP_ENTRY(entropy_gather)
ACTZIP_ENTRY(entropy_decode)
