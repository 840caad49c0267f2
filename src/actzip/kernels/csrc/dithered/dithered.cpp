// Entries of the Dithered codec: count codes of some chunks and choose contexts; encode all chains;
// gather them; decode. The format is in kernels/dithered_layout.py.
//
// As in bounded.cpp a finished chain waits in the workspace until all sizes are known, or is encoded
// again straight into its place. What one call leaves for the next is in `state`.
#include "dithered/decode.hpp"

ACTZIP_BEGIN

namespace dithered {

constexpr int LEVELS_STORED = 1, RAW_STORED = 2;
constexpr int64_t HEAD = 3;

// The looked-at chunk of each `every`: not always the same of them, since channels repeat.
inline int64_t looked_at(int64_t k, int64_t every, int64_t chunks) {
  const int64_t aside = int64_t(uint32_t(k) * 0x9e3779b1u >> 8) * every >> 24;
  return k * every + aside < chunks ? k * every + aside : k * every;
}

inline bool valid(const Spec& s, Buffer<const uint8_t> grid) {
  if (s.n < 0 || s.channels < 1 || s.inner < 1 || s.dtype < kF32 || s.dtype > kF64) return false;
  return grid.bytes / (s.dtype == kF64 ? 8 : 4) / (s.sides ? FIELDS : 1) >= s.channels;
}

// Memory that is given out piece by piece.
struct Room {
  uint8_t *at, *end;
  explicit Room(Buffer<uint8_t> b) : at(b.at), end(b.at + b.bytes) {
    while (at < end && reinterpret_cast<uintptr_t>(at) % 64) ++at;
  }
  template <class T> T* take(int64_t count) {
    if (count < 0 || count > (end - at) / int64_t(sizeof(T))) return at = end, nullptr;
    T* const found = reinterpret_cast<T*>(at);
    at += min_of<int64_t>(ceil_div(count * int64_t(sizeof(T)), 64) * 64, end - at);
    return found;
  }
};

struct State {
  Contexts* contexts;
  int64_t *sizes, *place;  // per chain: its bytes and those of its coded symbols; where it waits, or -1
  uint8_t *levels, *raw;   // per chunk: a byte, eight bytes
  bool fits;
  State(const Spec& s, Buffer<uint8_t> b) {
    Room room(b);
    contexts = room.take<Contexts>(1);
    sizes = room.take<int64_t>(2 * ceil_div(s.n, SPAN));
    place = room.take<int64_t>(ceil_div(s.n, SPAN));
    levels = room.take<uint8_t>(ceil_div(s.n, CHUNK));
    raw = room.take<uint8_t>(8 * ceil_div(s.n, CHUNK));
    fits = contexts && sizes && place && levels && raw;
  }
  int64_t chains(const Spec& s) const { return ceil_div(s.n, SPAN * contexts->chain); }
  bool sound() const {  // as dithered_count left it
    if (contexts->count < 1 || contexts->count > CONTEXTS || contexts->stored_bytes < 0) return false;
    for (int k = 0; k < contexts->count; ++k)
      if (dithered_tables::base_of(contexts->group[k]) == 0) return false;
    return contexts->stored_bytes <= dithered_tables::MOST_STORED && contexts->chain >= 1 &&
           contexts->chain <= entropy::MAX_CHAIN;
  }
};

// Bytes before the chains; `to` may be null.
inline int64_t put_head(const Spec& spec, const State& s, uint8_t* to) {
  const int64_t chunks = ceil_div(spec.n, CHUNK);
  bool levels = false, raw = false;
  for (int64_t k = 0; k < chunks; ++k) {
    levels |= s.levels[k] != s.levels[0];
    raw |= load_as<uint64_t>(s.raw + 8 * k) != 0;
  }
  const int64_t chains = s.chains(spec), stored = s.contexts->stored_bytes;
  if (to) {
    to[0] = uint8_t(LEVELS_STORED * levels + RAW_STORED * raw);
    to[1] = chunks ? s.levels[0] : 0, to[2] = uint8_t(s.contexts->chain);
    copy(to += HEAD, s.contexts->stored, stored);
    copy(to += stored, s.levels, levels * chunks);
    copy(to += levels * chunks, s.raw, raw * 8 * chunks);
    to += raw * 8 * chunks;
    for (int64_t k = 0; k < 2 * chains; ++k, to += 4) store_as(to, uint32_t(s.sizes[k]));
  }
  return HEAD + stored + chunks * (levels + 8 * raw) + 8 * chains;
}

struct EncodeTables {
  entropy::EncodeTable each[CONTEXTS];
  explicit EncodeTables(const Contexts& c) {
    for (int k = 0; k < c.count; ++k) entropy::make_encode(c.frequency[k], each[k]);
  }
};

// f(T{}, table of grids, memory of each thread) with what lies in the scratch.
template <class M, class F>
inline int64_t with_scratch(const Spec& spec, Buffer<uint8_t> scratch, int64_t threads, F&& f) {
  if (threads < 1) return kBadArgument;
  return with_float(spec.dtype, [&](auto type) -> int64_t {
    using R = Real<decltype(type)>;
    Room room(scratch);
    R* const table = room.take<R>(Grids<R>::room(spec));
    M* const each = room.take<M>(threads);
    if (!table || !each) return kBadArgument;
    Grids<R>::make(spec, table);
    return f(type, table, each);
  });
}

}  // namespace dithered

// Chooses contexts for what some chunks hold. Returns expected bytes, at least 1; 0 when steps are
// too fine for this format.
int64_t dithered_count(Buffer<const uint8_t> x, int64_t n, int64_t dtype, Buffer<const uint8_t> grid,
                       int64_t channels, int64_t inner, uint64_t seed, int64_t sides, int64_t every,
                       Buffer<uint8_t> state, Buffer<uint8_t> scratch, int64_t threads) {
  using namespace dithered;
  using dithered_tables::BINS;
  using dithered_tables::COUNTED;
  using dithered_tables::COUNTS;
  const Spec spec{n, dtype, grid, channels, inner, seed, sides != 0};
  const State s(spec, state);
  if (!x.holds(n, itemsize(dtype)) || !valid(spec, grid) || every < 1 || !s.fits) return kBadArgument;
  const int64_t chunks = ceil_div(n, CHUNK);
  struct Counts { int32_t of[COUNTS]; };
  return with_scratch<Counts>(spec, scratch, threads, [&](auto type, auto* table, Counts* counts) -> int64_t {
    using T = decltype(type);
    std::memset(counts, 0, size_t(threads) * sizeof *counts);
    parallel_for(ceil_div(chunks, every), threads, [&](int64_t k) {
      int32_t *const found = counts[thread_number()].of, *const tail = found + BINS * COUNTED;
      const int64_t chunk = looked_at(k, every, chunks);
      alignas(64) uint8_t byte[CHUNK], bin[CHUNK];
      Grids<Real<T>> grids(spec, table);
      int level = 0;
      uint64_t raw;
      int64_t count = 0;
      const auto take = [&](int64_t start, int n, const Dither& dither, const uint32_t* code) {
        const int64_t at = start - chunk * CHUNK;
        to_bytes(code, byte + at);
        std::memcpy(bin + at, dither.bin, BLOCK);
        count = at + n;
      };
      quantize_chunk<T>(spec, x.as<const T>(), chunk, grids, level, raw, take);
      for (int64_t i = 0; i < count; ++i) {
        ++found[bin[i] * COUNTED + min_of<int>(byte[i], COUNTED - 1)];
        if (byte[i] >= COUNTED - 1) ++tail[byte[i]];
      }
    });
    int32_t* const all = counts[0].of;
    for (int64_t t = 1; t < threads; ++t)
      for (int64_t k = 0; k < COUNTS; ++k) all[k] += counts[t].of[k];
    for (int b = 0; b < BINS; ++b)
      for (int k = 0; k < COUNTED - 1; ++k) all[BINS * COUNTED + k] += all[b * COUNTED + k];
    const double bits = dithered_tables::choose(all, n, *s.contexts);
    return bits < 0 ? 0 : 1 + int64_t(bits / 8);
  });
}

// What dithered_count chose, as dithered_given takes it; how many bytes.
int64_t dithered_chosen(int64_t n, Buffer<uint8_t> state, Buffer<uint8_t> table) {
  using namespace dithered;
  const State s(Spec{n, kF32, nullptr, 1, 1, 0, false}, state);
  if (n < 0 || !s.fits || !s.sound() || table.bytes < 1 + s.contexts->stored_bytes) return kBadArgument;
  table.at[0] = uint8_t(s.contexts->chain);
  std::memcpy(table.at + 1, s.contexts->stored, size_t(s.contexts->stored_bytes));
  return 1 + s.contexts->stored_bytes;
}

// Takes these tables (Given.stored) instead.
int64_t dithered_given(Buffer<const uint8_t> table, int64_t n, Buffer<uint8_t> state) {
  using namespace dithered;
  const State s(Spec{n, kF32, nullptr, 1, 1, 0, false}, state);
  if (n < 0 || !s.fits || table.bytes < 1 || table.bytes > 1 + dithered_tables::MOST_STORED) return kBadArgument;
  Contexts& c = *s.contexts;
  c.chain = table[0], c.given = true;
  if (c.chain < 1 || c.chain > entropy::MAX_CHAIN || (c.chain & (c.chain - 1))) return kDamaged;
  if (!dithered_tables::load(table + 1, table.bytes - 1, c) || c.stored_bytes != table.bytes - 1) return kDamaged;
  std::memcpy(c.stored, table + 1, size_t(c.stored_bytes));
  return kOk;
}

// Returns the bytes of the payload; 0 when some span has too many extra bits.
int64_t dithered_encode(Buffer<const uint8_t> x, int64_t n, int64_t dtype, Buffer<const uint8_t> grid,
                        int64_t channels, int64_t inner, uint64_t seed, int64_t sides,
                        Buffer<uint8_t> state, Buffer<uint8_t> workspace, Buffer<uint8_t> scratch,
                        int64_t threads) {
  using namespace dithered;
  Spec spec{n, dtype, grid, channels, inner, seed, sides != 0};
  const State state_(spec, state);
  if (!x.holds(n, itemsize(dtype)) || !valid(spec, grid) || !state_.fits || !state_.sound())
    return kBadArgument;
  const Contexts& c = *state_.contexts;
  spec.given = c.given;
  const EncodeTables tables(c);
  return with_scratch<Scratch>(spec, scratch, threads, [&](auto type, auto* table, Scratch* each) -> int64_t {
    using T = decltype(type);
    int64_t used = 0, total = 0, failed = 0;
    parallel_for(state_.chains(spec), threads, [&](int64_t k) {
      Scratch& s = each[thread_number()];
      const Encoded e = encode_chain<T>(spec, x.as<const T>(), k, c, tables.each, table, state_.levels,
                                        state_.raw, s);
      const int64_t bytes = e.coded_bytes + e.extra_bytes;
      state_.place[k] = state_.sizes[2 * k] = -1;
      state_.sizes[2 * k + 1] = e.coded_bytes;
      if (e.extra_bytes < 0) return atomic_add(&failed, 1);
      state_.sizes[2 * k] = bytes + raw_bytes(spec, k, c.chain, state_.raw);
      atomic_add(&total, state_.sizes[2 * k]);
      const int64_t at = __atomic_fetch_add(&used, bytes, __ATOMIC_RELAXED);
      if (at + bytes > workspace.bytes) return;
      state_.place[k] = at;
      put_chain(e, s, workspace + at);
    });
    return failed ? 0 : put_head(spec, state_, nullptr) + total;
  });
}

// Puts the head and all chains in order into `data`.
int64_t dithered_gather(Buffer<const uint8_t> x, int64_t n, int64_t dtype, Buffer<const uint8_t> grid,
                        int64_t channels, int64_t inner, uint64_t seed, int64_t sides,
                        Buffer<uint8_t> state, Buffer<const uint8_t> workspace, Buffer<uint8_t> scratch,
                        Buffer<uint8_t> data, int64_t threads) {
  using namespace dithered;
  Spec spec{n, dtype, grid, channels, inner, seed, sides != 0};
  const State state_(spec, state);
  if (!x.holds(n, itemsize(dtype)) || !valid(spec, grid) || !state_.fits || !state_.sound())
    return kBadArgument;
  const Contexts& c = *state_.contexts;
  spec.given = c.given;
  const int64_t chains = state_.chains(spec), head = put_head(spec, state_, nullptr);
  int64_t total = head;
  for (int64_t k = 0; k < chains; ++k) {
    const int64_t size = state_.sizes[2 * k], place = state_.place[k];
    const int64_t waiting = size - raw_bytes(spec, k, c.chain, state_.raw);
    if (waiting < 0 || size > data.bytes) return kBadArgument;
    if (place >= 0 && place > workspace.bytes - waiting) return kBadArgument;
    total += size;
  }
  if (total != data.bytes) return kBadArgument;
  put_head(spec, state_, data);
  const EncodeTables tables(c);
  return with_scratch<Scratch>(spec, scratch, threads, [&](auto type, auto* table, Scratch* each) -> int64_t {
    using T = decltype(type);
    const T* const from = x.as<const T>();
    int64_t changed = 0, next = head;
    for (int64_t k = 0; k < chains; ++k) {  // from here on: where each chain goes
      const int64_t size = state_.sizes[2 * k];
      state_.sizes[2 * k] = next, next += size;
    }
    parallel_for(chains, threads, [&](int64_t k) {
      const int64_t end = k + 1 < chains ? state_.sizes[2 * k + 2] : next;
      const int64_t waiting = end - state_.sizes[2 * k] - raw_bytes(spec, k, c.chain, state_.raw);
      uint8_t* const to = data + state_.sizes[2 * k];
      if (state_.place[k] >= 0) {
        std::memcpy(to, workspace + state_.place[k], size_t(waiting));
      } else {
        Scratch& s = each[thread_number()];
        const Encoded e = encode_chain<T>(spec, from, k, c, tables.each, table, state_.levels, state_.raw, s);
        if (e.extra_bytes < 0 || e.coded_bytes + e.extra_bytes != waiting) return atomic_add(&changed, 1);
        put_chain(e, s, to);
      }
      each_raw(spec, k, c.chain, state_.raw, sizeof(T), [&](int64_t b, int64_t bytes, int64_t at) {
        std::memcpy(to + waiting + at, from + b * BLOCK, size_t(bytes));
      });
    });
    return changed ? kBadArgument : kOk;
  });
}

int64_t dithered_decode(Buffer<const uint8_t> data, int64_t n, int64_t dtype, Buffer<const uint8_t> grid,
                        int64_t channels, int64_t inner, uint64_t seed, int64_t sides, Buffer<uint8_t> out,
                        Buffer<int64_t> offsets, Buffer<uint8_t> scratch, int64_t threads) {
  using namespace dithered;
  const Spec spec{n, dtype, grid, channels, inner, seed, sides != 0};
  const int64_t chunks = ceil_div(n, CHUNK);
  if (!out.holds(n, itemsize(dtype)) || !valid(spec, grid)) return kBadArgument;
  if (data.bytes < HEAD || data[0] > LEVELS_STORED + RAW_STORED || data[1] >= bounded::LEVELS) return kDamaged;
  Contexts c;
  c.chain = data[2];
  if (c.chain < 1 || c.chain > entropy::MAX_CHAIN || (c.chain & (c.chain - 1))) return kDamaged;
  if (!dithered_tables::load(data + HEAD, data.bytes - HEAD, c)) return kDamaged;
  const int64_t chains = ceil_div(n, SPAN * c.chain), levels = data[0] & LEVELS_STORED ? chunks : 0;
  const int64_t raw = data[0] & RAW_STORED ? 8 * chunks : 0, head = HEAD + c.stored_bytes + levels + raw;
  if (!offsets.holds(chains + 1, 8)) return kBadArgument;
  if (data.bytes - head < 8 * chains) return kDamaged;
  const uint8_t *const stored = data + HEAD + c.stored_bytes, *const sizes = data + head;
  offsets[0] = head + 8 * chains;
  for (int64_t k = 0; k < chains; ++k) {
    const int64_t size = load_as<int32_t>(sizes + 8 * k), coded = load_as<int32_t>(sizes + 8 * k + 4);
    if (coded < 0 || coded > size || size > data.bytes - offsets[k]) return kDamaged;
    offsets[k + 1] = offsets[k] + size;
  }
  if (offsets[chains] != data.bytes) return kDamaged;
  for (int64_t k = 0; k < levels; ++k)
    if (stored[k] >= bounded::LEVELS) return kDamaged;
  const int64_t behind = ceil_div(n, BLOCK) % BLOCKS_PER_CHUNK;  // blocks of the last chunk
  if (raw && behind && load_as<uint64_t>(stored + levels + raw - 8) >> behind) return kDamaged;
  return with_scratch<Span>(spec, scratch, threads, [&](auto type, auto* table, Span* each) -> int64_t {
    using T = decltype(type);
    Room rest(scratch);
    rest.at = reinterpret_cast<uint8_t*>(each + threads);
    Tables* const tables = rest.take<Tables>(1);
    uint8_t* const filled = rest.take<uint8_t>(9 * chunks);  // what is not stored
    if (!tables || !filled) return kBadArgument;
    if (!make_tables(c, *tables)) return kDamaged;
    if (!levels) std::memset(filled, data[1], size_t(chunks));
    if (!raw) std::memset(filled + chunks, 0, size_t(8 * chunks));
    const uint8_t *const all_levels = levels ? stored : filled, *const all_raw = raw ? stored + levels : filled + chunks;
    const bool stream = beyond_caches(n * int64_t(sizeof(T))) && can_stream(out);
    int64_t damaged = 0;
    parallel_for(chains, threads, [&](int64_t k) {
      const int64_t coded = load_as<int32_t>(sizes + 8 * k + 4);
      if (!decode_chain<T>(spec, k, c, *tables, table, all_levels, all_raw, data + offsets[k], coded,
                           offsets[k + 1] - offsets[k], each[thread_number()], out.as<T>(), stream))
        atomic_add(&damaged, 1);
    });
    return damaged ? kDamaged : kOk;
  });
}

ACTZIP_END

ACTZIP_ENTRY(dithered_count)
ACTZIP_ENTRY(dithered_chosen)
ACTZIP_ENTRY(dithered_given)
ACTZIP_ENTRY(dithered_encode)
ACTZIP_ENTRY(dithered_gather)
ACTZIP_ENTRY(dithered_decode)
