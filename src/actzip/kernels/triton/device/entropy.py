"""The entropy stage on the device (reference/entropy.py): a chain of spans a program, its 32 states
the lanes of one warp.

A chain is coded backwards into room of its own, as its size is not known before; a second launch
moves the words to their place.
"""

import triton
import triton.language as tl

SPAN = tl.constexpr(65536)
ROWS = tl.constexpr(2048)  #: of a span: each state takes a symbol in a row
ROOM = tl.constexpr(50176)  #: words that a span may take, at 12 bits a symbol, and some more
LOWEST = tl.constexpr(1 << 15)


@triton.jit
def count_codes(codes_ptr, counts_ptr, n, SIZE: tl.constexpr):
    """Adds how often each of the 256 codes occurs."""
    first = tl.program_id(0).to(tl.int64) * SIZE
    local = tl.arange(0, SIZE)
    inside = local < n - first
    codes = tl.load(codes_ptr + first + local, mask=inside, other=0).to(tl.int32)
    found = tl.histogram(codes, 256, mask=inside)
    tl.atomic_add(counts_ptr + tl.arange(0, 256), found.to(tl.int64), mask=found > 0)


@triton.jit
def encode_chains(
    codes_ptr, frequency_ptr, start_ptr, room_ptr, states_ptr, sizes_ptr, n, spans,
    CHAIN: tl.constexpr,
):  # fmt: skip
    """Words (int16) at the end of each span's ROOM, the final states, and the bytes of spans."""
    lane = tl.arange(0, 32)
    chain = tl.program_id(0).to(tl.int64)
    x = (lane * 0 + LOWEST).to(tl.uint32)
    last = tl.minimum(spans - chain * CHAIN, CHAIN).to(tl.int32)
    for back in range(last):
        span = chain * CHAIN + (last - 1 - back)
        begin = span * SPAN
        rows = ((tl.minimum(n - begin, SPAN) + 31) // 32).to(tl.int32)
        end = room_ptr + span * ROOM
        at = rows * 0 + ROOM
        for behind in range(rows):
            place = begin + (rows - 1 - behind) * 32 + lane
            there = place < n
            s = tl.load(codes_ptr + place, mask=there, other=0).to(tl.int32)
            f = tl.load(frequency_ptr + s).to(tl.uint32)
            f = tl.where(there, tl.maximum(f, 1), 1)
            given = there & (x >= f << 19)
            one = given.to(tl.int32)
            count = tl.sum(one)
            order = at - count + tl.cumsum(one, axis=0) - one
            word = (x & 0xFFFF).to(tl.uint16).to(tl.int16, bitcast=True)
            tl.store(end + order, word, mask=given)
            at -= count
            x = tl.where(given, x >> 16, x)
            first = tl.load(start_ptr + s).to(tl.uint32)
            x = tl.where(there, ((x // f) << 12) + x % f + first, x)
        head = tl.where(last - back == 1, 128, 0)
        tl.store(sizes_ptr + span, (at * -2 + (2 * ROOM + head)).to(tl.int64))
    tl.store(states_ptr + chain * 32 + lane, x.to(tl.int32, bitcast=True))


@triton.jit
def gather_spans(
    room_ptr, states_ptr, sizes_ptr, begins_ptr, data_ptr, room, CHAIN: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Bytes of a span, which has `room` of them, to their place: the states of its chain if it is
    the first, then words."""
    span = tl.program_id(0).to(tl.int64)
    size = tl.load(sizes_ptr + span)
    target = data_ptr + tl.load(begins_ptr + span)
    head = tl.where(span % CHAIN == 0, 128, 0)
    i = tl.arange(0, SIZE)
    if head > 0:
        state = tl.load(states_ptr + span // CHAIN * 32 + i // 4, mask=i < 128, other=0)
        octet = (state.to(tl.uint32, bitcast=True) >> (i % 4 * 8).to(tl.uint32)) & 255
        tl.store(target + i, octet.to(tl.uint8), mask=i < 128)
    words = size - head
    source = room_ptr + ((span + 1) * room - words)
    for at in range(0, words.to(tl.int32), SIZE):
        inside = at + i < words
        octet = tl.load(source + at + i, mask=inside)
        tl.store(target + head + at + i, octet, mask=inside)


@triton.jit
def decode_chains(
    data_ptr, begins_ptr, ends_ptr, frequency_ptr, start_ptr, symbol_ptr, out_ptr, damaged_ptr, n,
    spans, size, CHAIN: tl.constexpr,
):  # fmt: skip
    """damaged_ptr becomes 1 for bytes that no encoder writes."""
    lane = tl.arange(0, 32)
    chain = tl.program_id(0).to(tl.int64)
    at = tl.load(begins_ptr + chain * CHAIN)
    x = (lane * 0).to(tl.uint32)
    for k in tl.static_range(4):
        place = at + lane * 4 + k
        octet = tl.load(data_ptr + place, mask=place < size, other=0).to(tl.uint32)
        x |= octet << (8 * k)
    wrong = tl.sum(((x < LOWEST) | ((x >> 31) != 0)).to(tl.int32))
    last = tl.minimum(spans - chain * CHAIN, CHAIN).to(tl.int32)
    for k in range(last):
        span = chain * CHAIN + k
        begin = span * SPAN
        at = tl.load(begins_ptr + span) + tl.where(k == 0, 128, 0)
        rows = ((tl.minimum(n - begin, SPAN) + 31) // 32).to(tl.int32)
        for row in range(rows):
            place = begin + row * 32 + lane
            there = place < n
            slot = x & 4095
            s = tl.load(symbol_ptr + slot.to(tl.int32)).to(tl.int32)
            f = tl.load(frequency_ptr + s).to(tl.uint32)
            grown = f * (x >> 12) + slot - tl.load(start_ptr + s).to(tl.uint32)
            low = there & (grown < LOWEST)
            one = low.to(tl.int32)
            word = at + (tl.cumsum(one, axis=0) - one) * 2
            held = low & (word + 1 < size)
            first = tl.load(data_ptr + word, mask=held, other=0).to(tl.uint32)
            second = tl.load(data_ptr + word + 1, mask=held, other=0).to(tl.uint32)
            grown = tl.where(low, (grown << 16) | first | (second << 8), grown)
            x = tl.where(there, grown, x)
            tl.store(out_ptr + place, s.to(tl.uint8), mask=there)
            at += tl.sum(one) * 2
        wrong += (at != tl.load(ends_ptr + span)).to(tl.int32)
    wrong += tl.sum((x != LOWEST).to(tl.int32))
    if wrong > 0:
        tl.store(damaged_ptr, 1)
