// The entropy coder: 32 interleaved range-ANS states of 31 bits, words of 16, frequencies that sum
// to 4096. Symbol i belongs to state i % 32. Spans of 65536 symbols form chains, which are coded
// backwards from their end, so that decoding runs forwards: the bytes of a span are the words in
// the order of reading, before them in the first span of a chain its 32 final states (uint32).
#pragma once

#include "common/core.hpp"

#ifdef __AVX2__
#include <immintrin.h>
#endif

ACTZIP_BEGIN
namespace entropy {

constexpr int STATES = 32;
constexpr int SCALE_BITS = 12;
constexpr int SCALE = 1 << SCALE_BITS;
constexpr uint32_t LOWEST = 1u << 15;  // states live in [2^15, 2^31): signed compares will do
constexpr int64_t SPAN = 65536;
constexpr int64_t MAX_CHAIN = 8;       // spans that share their states
// A symbol costs at most 12 bits and the states 4 bytes each; vector stores need some slack.
constexpr int64_t SPAN_ROOM = SPAN * SCALE_BITS / 8 + 4 * STATES + 64;

// slot -> symbol (8 bits), slot - start (12), frequency (12)
struct DecodeTable {
  alignas(64) uint32_t entry[SCALE];
};

// Division by the frequency as a multiplication (Alverson), in two words per symbol:
// the reciprocal; and start (13 bits), 4096 - frequency (12), shift (4). `both`: the latter, and the
// reciprocal above it.
struct EncodeTable {
  alignas(64) uint32_t reciprocal[256], rest[256];
  uint64_t both[256];
};

// False when frequencies are not what a table can hold: sum 4096, none above 4095.
inline bool make_decode(const uint16_t* frequency, DecodeTable& t) {
  uint32_t start = 0;
  for (uint32_t s = 0; s < 256; ++s) {
    const uint32_t f = frequency[s];
    if (f >= uint32_t(SCALE) || start + f > uint32_t(SCALE)) return false;
    for (uint32_t k = 0; k < f; ++k) t.entry[start + k] = s | k << 8 | f << 20;
    start += f;
  }
  return start == uint32_t(SCALE);
}

inline void make_encode(const uint16_t* frequency, EncodeTable& t) {
  uint32_t start = 0;
  for (int s = 0; s < 256; ++s) {
    const uint32_t f = frequency[s];
    uint32_t shift = 0;
    while (f > (1u << shift)) ++shift;
    // f = 1: the product's high word is x - 1, which the added 4095 makes up for
    const bool one = f < 2;
    t.reciprocal[s] = one ? ~0u : uint32_t(((uint64_t{1} << (shift + 31)) + f - 1) / f);
    const uint32_t bias = one ? start + SCALE - 1 : start;
    t.rest[s] = bias | (SCALE - f) % SCALE << 13 | (one ? 0 : shift - 1) << 25;
    t.both[s] = uint64_t{t.reciprocal[s]} << 32 | t.rest[s];
    start += f;
  }
}

inline uint32_t advance(uint32_t x, uint32_t reciprocal, uint32_t rest) {
  const uint32_t q = uint32_t(uint64_t{x} * reciprocal >> 32) >> (rest >> 25);
  return x + (rest & 8191) + q * (rest >> 13 & 4095);
}

// States from this on must give up a word before they take the symbol.
inline uint32_t ceiling(uint32_t rest) { return (SCALE - (rest >> 13 & 4095)) << 19; }

// One symbol each for states [0, count), writing words downwards from `at`.
inline uint8_t* encode_some(const uint8_t* symbols, int count, const EncodeTable& t, uint32_t* x,
                            uint8_t* at) {
  for (int i = count - 1; i >= 0; --i) {
    const uint32_t rest = t.rest[symbols[i]];
    if (x[i] >= ceiling(rest)) {
      at -= 2;
      store_as(at, uint16_t(x[i]));
      x[i] >>= 16;
    }
    x[i] = advance(x[i], t.reciprocal[symbols[i]], rest);
  }
  return at;
}

// One symbol each from states [0, count); null when words run out.
inline const uint8_t* decode_some(uint8_t* symbols, int count, const DecodeTable& t, uint32_t* x,
                                  const uint8_t* at, const uint8_t* end) {
  for (int i = 0; i < count; ++i) {
    const uint32_t e = t.entry[x[i] & (SCALE - 1)];
    symbols[i] = uint8_t(e);
    x[i] = (e >> 20) * (x[i] >> SCALE_BITS) + (e >> 8 & 4095);
    if (x[i] < LOWEST) {
      if (end - at < 2) return nullptr;
      x[i] = x[i] << 16 | load_as<uint16_t>(at);
      at += 2;
    }
  }
  return at;
}

struct States {
  alignas(64) uint32_t x[STATES];

  States() {
    for (uint32_t& state : x) state = LOWEST;
  }
  uint8_t* store(uint8_t* at) const {
    for (int i = STATES - 1; i >= 0; --i) store_as(at -= 4, x[i]);
    return at;
  }
  // Null for bytes that no encoder writes.
  const uint8_t* load(const uint8_t* at, const uint8_t* end) {
    if (end - at < 4 * STATES) return nullptr;
    for (int i = 0; i < STATES; ++i, at += 4) {
      x[i] = load_as<uint32_t>(at);
      if (x[i] < LOWEST || x[i] >> 31) return nullptr;
    }
    return at;
  }
  // As they were before the last symbol of the chain: every chain ends so.
  bool at_rest() const {
    for (uint32_t state : x)
      if (state != LOWEST) return false;
    return true;
  }
};

// A span's words and where its symbols go, with room for whole rows of 32.
struct Words {
  const uint8_t *at, *end;
  int64_t n;
  uint8_t* symbols;
  States* states;
};

}  // namespace entropy
ACTZIP_END

// encode_rows; decode_rows from row i on until words may run short, of one span or of two at once.
#if defined(__AVX512BW__) && defined(__AVX512VL__)
#include "entropy/avx512.hpp"
#elif defined(__AVX2__)
#include "entropy/avx2.hpp"
#else
#include "entropy/portable.hpp"
#endif

ACTZIP_BEGIN
namespace entropy {

// Codes the n symbols of a span so that the words end at `end`; returns their begin. The room
// before `end` is SPAN_ROOM, in which there is slack for the vector stores.
inline uint8_t* encode_span(const uint8_t* symbols, int64_t n, const EncodeTable& t, States& states,
                            uint8_t* end) {
  const int64_t whole = n / STATES * STATES;
  uint8_t* const at = encode_some(symbols + whole, int(n - whole), t, states.x, end);
  return encode_rows(symbols, whole, t, states.x, at);
}

// Reads the symbols of a span from row `done` on; false when its words are too few or too many.
inline bool decode_span(Words w, int64_t done, const DecodeTable& t) {
  const int64_t whole = w.n / STATES * STATES;
  done = decode_rows(w, done, whole, t);
  // That stops where a row might run short. The last words of a span of few bits hold thousands of
  // symbols, so it goes on from a copy with room behind it.
  uint8_t last[8 * STATES] = {};
  const int64_t left = w.end - w.at;
  if (left > 0 && left < 4 * STATES) {
    std::memcpy(last, w.at, size_t(left));
    w.at = last, w.end = last + sizeof last;
    done = decode_rows(w, done, whole, t);
    w.end = last + left;
  }
  for (; done < whole && w.at && w.at <= w.end; done += STATES)
    w.at = decode_some(w.symbols + done, STATES, t, w.states->x, w.at, w.end);
  if (w.at && w.at <= w.end)
    w.at = decode_some(w.symbols + whole, int(w.n - whole), t, w.states->x, w.at, w.end);
  return w.at == w.end;
}

// One or two spans. A step waits for its table; meanwhile the other span goes on.
inline ACTZIP_ONCE bool decode_spans(Words* spans, int count, const DecodeTable& t) {
  const int64_t rows = count > 1 ? min_of(spans[0].n, spans[1].n) / STATES * STATES : 0;
  const int64_t done = rows > 0 ? decode_rows(spans[0], spans[1], rows, t) : 0;
  bool sound = true;
  for (int c = 0; c < count; ++c) sound = decode_span(spans[c], done, t) && sound;
  return sound;
}

// How many of n chains each thread decodes side by side.
inline int64_t side_by_side(int64_t n, int64_t threads) { return n >= 2 * threads ? 2 : 1; }

}  // namespace entropy
ACTZIP_END
