"""The symbols of Dithered's contexts to bytes and back (reference/entropy_rows.py): a chain of
spans a program, its 32 states the lanes of one warp. And the codes that escaped, one after the
other, as the place of each follows from the one before."""

import triton
import triton.language as tl

from actzip.kernels.triton.device.bounded import bit_width
from actzip.kernels.triton.device.chunks import take
from actzip.kernels.triton.device.dithered import ESCAPE, ROOM, SPAN, pick, rows_of
from actzip.kernels.triton.device.entropy import LOWEST

WORDS = tl.constexpr(49664)  #: that a span may take, at 12 bits a symbol, and some more


@triton.jit
def encode_chains(
    sums_ptr, counts_ptr, info_ptr, frequency_ptr, start_ptr, room_ptr, states_ptr, sizes_ptr,
    spans, contexts, CHAIN: tl.constexpr,
):  # fmt: skip
    """Words (int16) at the end of each chain's room, the final states, and the bytes of chains;
    symbols that the table does not hold become ESCAPE."""
    lane = tl.arange(0, 32)
    chain = tl.program_id(0).to(tl.int64)
    x = (lane * 0 + LOWEST).to(tl.uint32)
    last = tl.minimum(spans - chain * CHAIN, CHAIN).to(tl.int32)
    end = room_ptr + chain * (CHAIN * WORDS)
    at = last * 0 + CHAIN * WORDS
    for back in range(last):
        span = chain * CHAIN + (last - 1 - back)
        counts = tl.load(counts_ptr + span * 16 + tl.arange(0, 16))
        symbols, rows, first = rows_of(counts, info_ptr)
        for other in range(contexts):
            k = contexts - 1 - other
            many, here = pick(symbols, k), pick(first, k)
            count = pick(rows, k)
            for behind in range(count):
                i = (count - 1 - behind) * 32 + lane
                there = i < many
                source = sums_ptr + span * ROOM + here + i
                s = tl.minimum(tl.load(source, mask=there, other=0), ESCAPE)
                s = tl.where(tl.load(frequency_ptr + k * 256 + s) == 0, ESCAPE, s)
                tl.store(source, s, mask=there)
                f = tl.load(frequency_ptr + k * 256 + s).to(tl.uint32)
                f = tl.where(there, tl.maximum(f, 1), 1)
                given = there & (x >= f << 19)
                one = given.to(tl.int32)
                words = tl.sum(one)
                order = at - words + tl.cumsum(one, axis=0) - one
                word = (x & 0xFFFF).to(tl.uint16).to(tl.int16, bitcast=True)
                tl.store(end + order, word, mask=given)
                at -= words
                x = tl.where(given, x >> 16, x)
                slot = tl.load(start_ptr + k * 256 + s).to(tl.uint32)
                x = tl.where(there, ((x // f) << 12) + x % f + slot, x)
    tl.store(sizes_ptr + chain, (at * -2 + (2 * CHAIN * WORDS + 128)).to(tl.int64))
    tl.store(states_ptr + chain * 32 + lane, x.to(tl.int32, bitcast=True))


@triton.jit
def decode_chain(
    chain, at, end, data_ptr, sums_ptr, counts_ptr, info_ptr, frequency_ptr, start_ptr, symbol_ptr,
    spans, contexts, CHAIN: tl.constexpr,
):  # fmt: skip
    """Symbols of a chain from the bytes from `at` on; above 0 for bytes that no encoder writes."""
    lane = tl.arange(0, 32)
    x = (lane * 0).to(tl.uint32)
    for b in tl.static_range(4):
        place = at + lane * 4 + b
        x |= tl.load(data_ptr + place, mask=place < end, other=0).to(tl.uint32) << (8 * b)
    at += 128
    wrong = tl.sum(((x < LOWEST) | ((x >> 31) != 0)).to(tl.int32))
    last = tl.minimum(spans - chain * CHAIN, CHAIN).to(tl.int32)
    for of in range(last):
        span = chain * CHAIN + of
        counts = tl.load(counts_ptr + span * 16 + tl.arange(0, 16))
        symbols, rows, first = rows_of(counts, info_ptr)
        for k in range(contexts):
            many, here = pick(symbols, k), pick(first, k)
            for row in range(pick(rows, k)):
                i = row * 32 + lane
                there = i < many
                slot = x & 4095
                s = tl.load(symbol_ptr + k * 4096 + slot.to(tl.int32)).to(tl.int32)
                f = tl.load(frequency_ptr + k * 256 + s).to(tl.uint32)
                grown = f * (x >> 12) + slot - tl.load(start_ptr + k * 256 + s).to(tl.uint32)
                low = there & (grown < LOWEST)
                one = low.to(tl.int32)
                word = at + (tl.cumsum(one, axis=0) - one) * 2
                held = low & (word + 1 < end)
                below = tl.load(data_ptr + word, mask=held, other=0).to(tl.uint32)
                below |= tl.load(data_ptr + word + 1, mask=held, other=0).to(tl.uint32) << 8
                x = tl.where(there, tl.where(low, (grown << 16) | below, grown), x)
                tl.store(sums_ptr + span * ROOM + here + i, s, mask=there)
                at += tl.sum(one) * 2
    wrong += (at != end).to(tl.int32) + tl.sum((x != LOWEST).to(tl.int32))
    return wrong


@triton.jit
def decode_chains(
    data_ptr, begins_ptr, ends_ptr, sums_ptr, counts_ptr, info_ptr, frequency_ptr, start_ptr,
    symbol_ptr, damaged_ptr, spans, contexts, CHAIN: tl.constexpr,
):  # fmt: skip
    """damaged_ptr becomes 1 for bytes that no encoder writes."""
    chain = tl.program_id(0).to(tl.int64)
    at = tl.load(begins_ptr + chain)
    wrong = decode_chain(chain, at, tl.load(ends_ptr + chain), data_ptr, sums_ptr, counts_ptr,
                         info_ptr, frequency_ptr, start_ptr, symbol_ptr, spans, contexts,
                         CHAIN)  # fmt: skip
    if wrong > 0:
        tl.store(damaged_ptr, 1)


@triton.jit
def read_escaped_of(
    chain, begin, end, data_ptr, sums_ptr, places_ptr, codes_ptr, list_ptr, n, spans,
    CHAIN: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Codes of a chain among the extra bits between these bytes. list_ptr: room for SIZE numbers
    (int32) of each chain."""
    mine = list_ptr + chain * SIZE
    local = tl.arange(0, SIZE)
    at = begin * 8
    wrong = tl.full([], 0, tl.int32)
    last = tl.minimum(spans - chain * CHAIN, CHAIN).to(tl.int32)
    for of in range(last):
        span = chain * CHAIN + of
        tiles = ((tl.minimum(n - span * SPAN, SPAN) + SIZE - 1) // SIZE).to(tl.int32)
        for c in range(tiles):
            base = span * SPAN + c * SIZE
            inside = local < n - base
            place = tl.load(places_ptr + base + local, mask=inside, other=0)
            symbol = tl.load(sums_ptr + span * ROOM + (place >> 3), mask=inside, other=0)
            one = (inside & (symbol == ESCAPE)).to(tl.int32)
            tl.store(mine + tl.cumsum(one, axis=0) - one, local, mask=one != 0)
            tl.debug_barrier()  # numbers are read by all threads of this program
            for e in range(tl.sum(one)):
                word = take(data_ptr, at, end, at >= 0, 8, tl.uint64)
                low = (word & 0x1FFFFFFF).to(tl.int32)
                zeros = tl.maximum(bit_width(low & -low) - 1, 0)
                rest = (word >> (zeros + 1).to(tl.uint64)).to(tl.uint32).to(tl.int32, bitcast=True)
                code = (1 << zeros) + (rest & ((1 << zeros) - 1)) - 1
                tl.store(codes_ptr + base + tl.load(mine + e), code)
                wrong += (low == 0).to(tl.int32)
                at += 2 * zeros + 1
            tl.debug_barrier()  # and replaced by those of the next tile
        at = (at + 7) // 8 * 8
    wrong += (at != end * 8).to(tl.int32)
    return wrong


@triton.jit
def read_escaped(
    data_ptr, begins_ptr, ends_ptr, sums_ptr, places_ptr, codes_ptr, list_ptr, damaged_ptr, n,
    spans, CHAIN: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    chain = tl.program_id(0).to(tl.int64)
    begin = tl.load(begins_ptr + chain)
    wrong = read_escaped_of(chain, begin, tl.load(ends_ptr + chain), data_ptr, sums_ptr, places_ptr,
                            codes_ptr, list_ptr, n, spans, CHAIN, SIZE)  # fmt: skip
    if wrong > 0:
        tl.store(damaged_ptr, 1)
