"""Dithered codes with tables that are given, on the device: three launches for an encode, of which
the second is encode_chains (dithered_chains.py), and three for a decode, of which the first is
part_spans (dithered.py). No number is read by the host; where parts of a payload lie is summed up
here. Bytes are counted from the head of the format (dithered_layout.py)."""

import triton
import triton.language as tl

from actzip.kernels.triton.device.bounded import bit_width
from actzip.kernels.triton.device.chunks import merge, raw_bits, take_raw
from actzip.kernels.triton.device.dithered import (
    ESCAPE,
    ROOM,
    SPAN,
    bin_of,
    part_span,
    quantize_chunk,
    values_of,
)
from actzip.kernels.triton.device.dithered_chains import decode_chain, read_escaped_of
from actzip.kernels.triton.device.numbers import dither, load_seed

SIZES = tl.constexpr(4)  #: of a span: bytes of extra bits and of raw blocks, least and most level


@triton.jit
def escaped_by(
    codes_ptr, sums_ptr, places_ptr, context_ptr, frequency_ptr, key, span, base, local, inside,
    LONG: tl.constexpr,
):  # fmt: skip
    """Codes, which of them the tables do not hold, and the bits they take among the extra bits."""
    k = tl.load(context_ptr + bin_of(dither(key, base, local, tl.float32, LONG)))
    place = tl.load(places_ptr + base + local, mask=inside, other=0)
    symbol = tl.load(sums_ptr + span * ROOM + (place >> 3), mask=inside, other=0)
    symbol = tl.minimum(symbol, ESCAPE)
    code = tl.load(codes_ptr + base + local, mask=inside, other=0)
    frequency = tl.load(frequency_ptr + k * 256 + symbol)
    escaped = inside & ((frequency == 0) | (symbol == ESCAPE))
    return code, escaped, tl.where(escaped, 2 * bit_width(code + 1) - 1, 0)


@triton.jit(do_not_specialize=["seed"])
def code_spans(
    x_ptr, grid_ptr, codes_ptr, raw_ptr, levels_ptr, sums_ptr, places_ptr, counts_ptr, extra_ptr,
    sizes_ptr, context_ptr, info_ptr, frequency_ptr, seed, n, inner, channels, contexts, room,
    ROUNDOFF: tl.constexpr, CAP: tl.constexpr, SIDES: tl.constexpr, LARGE: tl.constexpr,
    LONG: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """A span a program: codes, raw blocks, levels, symbols by context, and the span's extra bits in
    `room` words (int32) of its own; SIZES numbers say how much that is."""
    ITEM: tl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth // 8
    span = tl.program_id(0).to(tl.int64)
    begin = span * SPAN
    local = tl.arange(0, SIZE)
    block = tl.arange(0, 64)
    kept = tl.full([], 0, tl.int32)
    least, most = kept + 255, kept
    chunks = ((tl.minimum(n - begin, SPAN) + 4095) // 4096).to(tl.int32)
    for c in range(chunks):
        _, _, raw, level = quantize_chunk(
            span * 16 + c, x_ptr, grid_ptr, codes_ptr, raw_ptr, levels_ptr, seed, n, inner,
            channels, ROUNDOFF, CAP, SIDES, True, LARGE, LONG)  # fmt: skip
        left = tl.minimum(n - begin - c * 4096, 4096).to(tl.int32) - block * 64
        length = tl.where(raw, tl.maximum(tl.minimum(left, 64), 0), 0)
        kept += tl.sum(length) * ITEM
        least, most = tl.minimum(least, level), tl.maximum(most, level)
    for at in range(0, ROOM, SIZE):
        tl.store(sums_ptr + span * ROOM + at + local, local * 0, mask=at + local < ROOM)
    tl.debug_barrier()  # codes and zeros are used by other threads
    part_span(span, codes_ptr, sums_ptr, places_ptr, counts_ptr, context_ptr, info_ptr, seed, n,
              contexts, True, LONG, SIZE)  # fmt: skip
    tl.debug_barrier()  # and so are sums
    key = load_seed(seed)
    bits_in_all = tl.full([], 0, tl.int32)
    tiles = ((tl.minimum(n - begin, SPAN) + SIZE - 1) // SIZE).to(tl.int32)
    for c in range(tiles):
        base = begin + c * SIZE
        _, _, bits = escaped_by(codes_ptr, sums_ptr, places_ptr, context_ptr, frequency_ptr, key,
                                span, base, local, local < n - base, LONG)  # fmt: skip
        bits_in_all += tl.sum(bits)
    if bits_in_all > 0:
        words_ptr = extra_ptr + span * room
        used = bits_in_all // 32 + 1
        for at in range(0, used, SIZE):
            tl.store(words_ptr + at + local, local * 0, mask=at + local < used)
        tl.debug_barrier()
        done = bits_in_all * 0
        for c in range(tiles):
            base = begin + c * SIZE
            code, escaped, bits = escaped_by(
                codes_ptr, sums_ptr, places_ptr, context_ptr, frequency_ptr, key, span, base,
                local, local < n - base, LONG)  # fmt: skip
            zeros = bits // 2
            value = (((code + 1) & ((1 << zeros) - 1)) * 2 + 1).to(tl.uint32, bitcast=True)
            merge(words_ptr, done + tl.cumsum(bits, axis=0) - bits + zeros, value, escaped)
            done += tl.sum(bits)
    mine = sizes_ptr + span * SIZES
    tl.store(mine, ((bits_in_all + 7) // 8).to(tl.int64))
    tl.store(mine + 1, kept.to(tl.int64))
    tl.store(mine + 2, least.to(tl.int64))
    tl.store(mine + 3, most.to(tl.int64))


@triton.jit
def move(from_ptr, to_ptr, start, count, step, SIZE: tl.constexpr):
    """Bytes from number `start` on up to `count`, SIZE of every `step`."""
    local = tl.arange(0, SIZE)
    for at in range(start, count, step):
        there = at + local < count
        tl.store(to_ptr + at + local, tl.load(from_ptr + at + local, mask=there), mask=there)


@triton.jit
def write_spans(
    x_ptr, raw_ptr, levels_ptr, room_ptr, states_ptr, coded_ptr, extra_ptr, sizes_ptr, stored_ptr,
    data_ptr, total_ptr, n, spans, chains, stored, first, room,
    CHAIN: tl.constexpr, WORDS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """All bytes of a payload to their places behind the byte `first`, and how many they are. Each
    span writes what is its own, and its share of its chain's coded symbols."""
    KIND: tl.constexpr = x_ptr.dtype.element_ty
    ITEM: tl.constexpr = KIND.primitive_bitwidth // 8
    span = tl.program_id(0).to(tl.int64)
    chain = span // CHAIN
    local = tl.arange(0, SIZE)
    zero = tl.full([], 0, tl.int64)
    in_all, before, extras, extra_before, values, values_before = zero, zero, zero, zero, zero, zero
    kept, least, most = zero, zero + 255, zero
    for at in range(0, spans, SIZE):
        i = at + local
        there = i < spans
        extra = tl.load(sizes_ptr + i * SIZES, mask=there, other=0)
        value = tl.load(sizes_ptr + i * SIZES + 1, mask=there, other=0)
        low = tl.load(sizes_ptr + i * SIZES + 2, mask=there, other=255)
        least = tl.minimum(least, tl.min(low, axis=0))
        high = tl.load(sizes_ptr + i * SIZES + 3, mask=there, other=0)
        most = tl.maximum(most, tl.max(high, axis=0))
        in_all += tl.sum(extra + value)
        kept += tl.sum(value)
        before += tl.sum(tl.where(i // CHAIN < chain, extra + value, 0))
        ours = i // CHAIN == chain
        extras += tl.sum(tl.where(ours, extra, 0))
        values += tl.sum(tl.where(ours, value, 0))
        extra_before += tl.sum(tl.where(ours & (i < span), extra, 0))
        values_before += tl.sum(tl.where(ours & (i < span), value, 0))
    for at in range(0, chains, SIZE):
        i = at + local
        coded_each = tl.load(coded_ptr + i, mask=i < chains, other=0)
        in_all += tl.sum(coded_each)
        before += tl.sum(tl.where(i < chain, coded_each, 0))
    coded = tl.load(coded_ptr + chain)
    chunks = (zero + n + 4095) // 4096
    levels, maps = (least != most).to(tl.int64), (kept > 0).to(tl.int64)
    levels_at = zero + 4 + stored
    maps_at = levels_at + levels * chunks
    table_at = maps_at + maps * 8 * chunks
    begin = table_at + 8 * chains + before
    first_span = chain * CHAIN
    if span == 0:
        tl.store(data_ptr, (zero + first).to(tl.uint8))
        tl.store(data_ptr + 1, (levels + 2 * maps).to(tl.uint8))
        tl.store(data_ptr + 2, tl.load(levels_ptr))
        tl.store(data_ptr + 3, tl.full([], CHAIN, tl.uint8))
        tl.store(total_ptr, begin + in_all)
        move(stored_ptr, data_ptr + 4, 0, stored, SIZE, SIZE)
    here = tl.minimum(chunks - span * 16, 16)
    if levels > 0:
        each = tl.arange(0, 16)
        level = tl.load(levels_ptr + span * 16 + each, mask=each < here, other=0)
        tl.store(data_ptr + levels_at + span * 16 + each, level, mask=each < here)
    if maps > 0:
        octet, bit = tl.arange(0, 128), tl.arange(0, 8)
        block = span * 1024 + octet[:, None] * 8 + bit[None, :]
        flags = tl.load(raw_ptr + block, mask=block * 64 < n, other=0).to(tl.int32)
        packed = tl.sum(flags << bit[None, :], axis=1).to(tl.uint8)
        tl.store(data_ptr + maps_at + span * 128 + octet, packed, mask=octet < 8 * here)
    if span == first_span:
        b = tl.arange(0, 8)
        both = tl.where(b < 4, coded + extras + values, coded)
        both = (both >> (b % 4 * 8).to(tl.int64)) & 255
        tl.store(data_ptr + table_at + chain * 8 + b, both.to(tl.uint8))
        q = tl.arange(0, 128)
        state = tl.load(states_ptr + chain * 32 + q // 4).to(tl.uint32, bitcast=True)
        state = (state >> (q % 4 * 8).to(tl.uint32)) & 255
        tl.store(data_ptr + begin + q, state.to(tl.uint8))
    sharing = tl.minimum(spans - first_span, CHAIN).to(tl.int32)
    words = (coded - 128).to(tl.int32)
    source = room_ptr + (chain + 1) * (2 * CHAIN * WORDS) - words
    move(source, data_ptr + begin + 128, (span - first_span).to(tl.int32) * SIZE, words,
         sharing * SIZE, SIZE)  # fmt: skip
    mine = tl.load(sizes_ptr + span * SIZES).to(tl.int32)
    after = data_ptr + begin + coded
    move(extra_ptr + span * (4 * room), after + extra_before, 0, mine, SIZE, SIZE)
    after += extras + values_before
    if tl.load(sizes_ptr + span * SIZES + 1) > 0:
        e = tl.arange(0, 4096)
        for c in range(here.to(tl.int32)):
            base = (span * 16 + c) * 4096
            raw = tl.load(raw_ptr + base // 64 + e // 64, mask=e < n - base, other=0).to(tl.int32)
            place = (tl.cumsum(raw, axis=0) - raw) * ITEM
            bits = raw_bits(tl.load(x_ptr + base + e, mask=raw != 0, other=0))
            for k in tl.static_range(ITEM):
                octets = ((bits >> (8 * k)) & 255).to(tl.uint8)
                tl.store(after + place + k, octets, mask=raw != 0)
            after += tl.sum(raw) * ITEM


@triton.jit
def head_of(data_ptr, stored, n):
    """Chunks, whether levels and maps of raw blocks are stored, and where they and chains' sizes
    are."""
    flags = tl.load(data_ptr).to(tl.int64)
    levels, maps = flags & 1, flags >> 1
    chunks = (flags * 0 + n + 4095) // 4096
    levels_at = flags * 0 + 3 + stored
    maps_at = levels_at + levels * chunks
    return chunks, levels, maps, levels_at, maps_at, maps_at + maps * 8 * chunks


@triton.jit
def word_at(data_ptr, place, mask):
    found = place * 0
    for k in tl.static_range(4):
        found |= tl.load(data_ptr + place + k, mask=mask, other=0).to(tl.int64) << (8 * k)
    return found


@triton.jit
def read_chains(
    data_ptr, sums_ptr, counts_ptr, places_ptr, codes_ptr, list_ptr, ends_ptr, info_ptr,
    frequency_ptr, start_ptr, symbol_ptr, n, spans, chains, contexts, stored,
    CHAIN: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Symbols of a chain, the codes that escaped, and where its bytes end."""
    chain = tl.program_id(0).to(tl.int64)
    local = tl.arange(0, SIZE)
    _, _, _, _, _, table_at = head_of(data_ptr, stored, n)
    before = table_at + 8 * chains
    for at in range(0, chain.to(tl.int32), SIZE):
        i = (at + local).to(tl.int64)
        before += tl.sum(word_at(data_ptr, table_at + 8 * i, i < chain))
    pair = tl.arange(0, 2).to(tl.int64)
    both = word_at(data_ptr, table_at + 8 * chain + 4 * pair, pair >= 0)
    end = before + tl.sum(tl.where(pair == 0, both, 0))
    coded = before + tl.sum(tl.where(pair == 1, both, 0))
    tl.store(ends_ptr + chain, end)
    decode_chain(chain, before, coded, data_ptr, sums_ptr, counts_ptr, info_ptr, frequency_ptr,
                 start_ptr, symbol_ptr, spans, contexts, CHAIN)  # fmt: skip
    tl.debug_barrier()  # symbols are read by other threads
    read_escaped_of(chain, coded, end, data_ptr, sums_ptr, places_ptr, codes_ptr, list_ptr, n,
                    spans, CHAIN, SIZE)  # fmt: skip


@triton.jit(do_not_specialize=["seed"])
def read_values(
    data_ptr, codes_ptr, sums_ptr, places_ptr, ends_ptr, grid_ptr, context_ptr, info_ptr, out_ptr,
    bits_ptr, seed, n, inner, channels, stored,
    CHAIN: tl.constexpr, SIDES: tl.constexpr, LARGE: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """A chunk a program. bits_ptr: the output as integers."""
    KIND: tl.constexpr = out_ptr.dtype.element_ty
    ITEM: tl.constexpr = KIND.primitive_bitwidth // 8
    chunk = tl.program_id(0).to(tl.int64)
    base = chunk * 4096
    local = tl.arange(0, 4096)
    inside = local < n - base
    _, levels, maps, levels_at, maps_at, _ = head_of(data_ptr, stored, n)
    level = tl.load(data_ptr + tl.where(levels > 0, levels_at + chunk, 1)).to(tl.int32)
    y = values_of(codes_ptr, sums_ptr, places_ptr, grid_ptr, context_ptr, info_ptr, seed, base,
                  local, inside, level, inner, channels, KIND, SIDES, LARGE, LONG)  # fmt: skip
    tl.store(out_ptr + base + local, y, mask=inside)
    if maps > 0:
        tl.debug_barrier()  # raw blocks are written once more
        octet = tl.load(data_ptr + maps_at + 8 * chunk + local // 512).to(tl.int32)
        raw = ((octet >> (local // 64 % 8)) & 1 != 0) & inside
        # values of raw blocks are at the end of a chain: those from this chunk on
        chain = chunk // (16 * CHAIN)
        left = tl.minimum(n - chain * (CHAIN * SPAN), CHAIN * SPAN).to(tl.int32)
        here = (chunk - chain * (16 * CHAIN)).to(tl.int32)
        i = tl.arange(0, 128 * CHAIN)
        there = (i >= 8 * here) & (i * 512 < left)
        maps_of = data_ptr + maps_at + chain * (128 * CHAIN)
        flags = tl.load(maps_of + i, mask=there, other=0).to(tl.int32)
        count = i * 0
        for b in tl.static_range(8):
            length = tl.maximum(tl.minimum(left - (i * 8 + b) * 64, 64), 0)
            count += ((flags >> b) & 1) * length
        end = tl.load(ends_ptr + chain)
        kept = end - tl.sum(count).to(tl.int64) * ITEM
        one = raw.to(tl.int32)
        place = kept + ((tl.cumsum(one, axis=0) - one) * ITEM).to(tl.int64)
        value = take_raw(data_ptr, place, end, raw, ITEM)
        tl.store(bits_ptr + base + local, value.to(bits_ptr.dtype.element_ty), mask=raw)
