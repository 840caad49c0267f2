// The other way to code symbols: canonical Huffman codes of at most 11 bits. Only for the comparison
// in benchmarks/entropy.py, so damaged bytes are not looked for.
//
// A span of 65536 symbols has eight streams, an eighth of the symbols each, that are coded and
// decoded side by side: 8 sizes (uint32), then the streams. Decoding looks 11 bits up at once and
// takes up to four symbols from them.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int LIMIT = 11, STREAMS = 8;
constexpr int64_t SPAN = 65536, ROOM = SPAN * LIMIT / 8 + 4 * STREAMS + 64;

struct Code {
  uint16_t bits[256] = {};
  uint8_t length[256] = {};
};

struct Entry {
  uint8_t symbols[4];
  uint8_t count, bits;         // of all symbols in it
  uint8_t first_bits, unused;  // of the first alone
};

// Lengths of least total size that are within LIMIT (package-merge).
void find_lengths(const int64_t* counts, uint8_t* lengths) {
  struct Coin {
    int64_t weight;
    std::vector<uint8_t> symbols;
  };
  std::vector<Coin> single, held;
  for (int s = 0; s < 256; ++s)
    if (counts[s]) single.push_back({counts[s], {uint8_t(s)}});
  const auto lighter = [](const Coin& a, const Coin& b) { return a.weight < b.weight; };
  std::sort(single.begin(), single.end(), lighter);
  for (int level = 0; level < LIMIT; ++level) {
    std::vector<Coin> next = single;
    for (size_t i = 0; i + 1 < held.size(); i += 2) {
      Coin both = held[i];
      both.weight += held[i + 1].weight;
      both.symbols.insert(both.symbols.end(), held[i + 1].symbols.begin(), held[i + 1].symbols.end());
      next.push_back(both);
    }
    std::stable_sort(next.begin(), next.end(), lighter);
    held = next;
  }
  std::memset(lengths, 0, 256);
  for (size_t i = 0; i < 2 * single.size() - 2; ++i)
    for (uint8_t s : held[i].symbols) ++lengths[s];
  if (single.size() == 1) lengths[single[0].symbols[0]] = 1;
}

// Canonical codes, read from the lowest bit on.
Code make_code(const uint8_t* lengths) {
  Code code;
  std::memcpy(code.length, lengths, 256);
  uint32_t next = 0;
  for (int length = 1; length <= LIMIT; ++length, next <<= 1)
    for (int s = 0; s < 256; ++s) {
      if (lengths[s] != length) continue;
      uint32_t turned = 0;
      for (int b = 0; b < length; ++b) turned |= (next >> b & 1) << (length - 1 - b);
      code.bits[s] = uint16_t(turned);
      ++next;
    }
  return code;
}

std::vector<Entry> make_table(const Code& code) {
  std::vector<Entry> single(1 << LIMIT), table(1 << LIMIT);
  for (int s = 0; s < 256; ++s)
    if (code.length[s])
      for (uint32_t i = code.bits[s]; i < single.size(); i += 1u << code.length[s])
        single[i].symbols[0] = uint8_t(s), single[i].first_bits = code.length[s];
  for (uint32_t i = 0; i < table.size(); ++i) {
    Entry& e = table[i];
    e.first_bits = single[i].first_bits;
    for (uint32_t rest = i; e.count < 4; rest = i >> e.bits) {
      const Entry& next = single[rest];
      if (next.first_bits == 0 || e.bits + next.first_bits > LIMIT) break;
      e.symbols[e.count++] = next.symbols[0];
      e.bits = uint8_t(e.bits + next.first_bits);
    }
  }
  return table;
}

int64_t begin_of(int64_t n, int stream) { return n * stream / STREAMS; }

uint8_t* encode_stream(const uint8_t* symbols, int64_t n, const Code& code, uint8_t* out) {
  uint64_t held = 0;
  int bits = 0;
  int64_t i = 0;
  const auto put = [&](int64_t at) {
    held |= uint64_t{code.bits[symbols[at]]} << bits;
    bits += code.length[symbols[at]];
  };
  const auto flush = [&] {
    std::memcpy(out, &held, 8);
    out += bits >> 3;
    held >>= bits & ~7;
    bits &= 7;
  };
  for (; i + 5 <= n; i += 5) {
    put(i), put(i + 1), put(i + 2), put(i + 3), put(i + 4);
    flush();
  }
  for (; i < n; ++i) put(i);
  flush();
  return out + (bits > 0);
}

int64_t encode_span(const uint8_t* symbols, int64_t n, const Code& code, uint8_t* out) {
  uint8_t* at = out + 4 * STREAMS;
  for (int j = 0; j < STREAMS; ++j) {
    uint8_t* const end =
        encode_stream(symbols + begin_of(n, j), begin_of(n, j + 1) - begin_of(n, j), code, at);
    const uint32_t size = uint32_t(end - at);
    std::memcpy(out + 4 * j, &size, 4);
    at = end;
  }
  return at - out;
}

struct Stream {
  const uint8_t* at;
  uint8_t *out, *end;
  int used = 0;  // bits of *at

  uint64_t word() const {
    uint64_t held;
    std::memcpy(&held, at, 8);
    return held >> used;
  }
  void take(uint64_t& held, const Entry* table) {
    const Entry& e = table[held & ((1 << LIMIT) - 1)];
    std::memcpy(out, e.symbols, 4);
    out += e.count;
    used += e.bits;
    held >>= e.bits;
  }
  void advance() {
    at += used >> 3;
    used &= 7;
  }
};

void decode_span(const uint8_t* in, int64_t n, const Entry* table, uint8_t* symbols) {
  Stream streams[STREAMS];
  const uint8_t* at = in + 4 * STREAMS;
  for (int j = 0; j < STREAMS; ++j) {
    uint32_t size;
    std::memcpy(&size, in + 4 * j, 4);
    streams[j] = {at, symbols + begin_of(n, j), symbols + begin_of(n, j + 1)};
    at += size;
  }
  for (bool more = true; more;) {  // 5 times up to 4 symbols of up to 11 bits in all
    uint64_t held[STREAMS];
    for (int j = 0; j < STREAMS; ++j) held[j] = streams[j].word();
    for (int round = 0; round < 5; ++round)
      for (int j = 0; j < STREAMS; ++j) streams[j].take(held[j], table);
    for (Stream& s : streams) {
      s.advance();
      more &= s.end - s.out >= 24;
    }
  }
  for (Stream& s : streams)
    for (; s.out < s.end; s.advance()) {
      const Entry& e = table[s.word() & ((1 << LIMIT) - 1)];
      *s.out++ = e.symbols[0];
      s.used += e.first_bits;
    }
}

}  // namespace

extern "C" {

void huffman_lengths(const int64_t* counts, uint8_t* lengths) { find_lengths(counts, lengths); }

// Spans are put ROOM bytes apart; returns the bytes in use.
int64_t huffman_encode(const uint8_t* symbols, int64_t n, const uint8_t* lengths, uint8_t* out,
                       int64_t threads) {
  const Code code = make_code(lengths);
  int64_t total = 0;
#pragma omp parallel for num_threads(int(threads)) schedule(dynamic) reduction(+ : total)
  for (int64_t c = 0; c < (n + SPAN - 1) / SPAN; ++c)
    total += encode_span(symbols + c * SPAN, std::min(SPAN, n - c * SPAN), code, out + c * ROOM);
  return total;
}

void huffman_decode(const uint8_t* in, int64_t n, const uint8_t* lengths, uint8_t* symbols,
                    int64_t threads) {
  const std::vector<Entry> table = make_table(make_code(lengths));
#pragma omp parallel for num_threads(int(threads)) schedule(dynamic)
  for (int64_t c = 0; c < (n + SPAN - 1) / SPAN; ++c)
    decode_span(in + c * ROOM, std::min(SPAN, n - c * SPAN), table.data(), symbols + c * SPAN);
}
}
