"""Group codes on the device, one launch for an encode and one for a decode.

`encode_tiles`: a program holds whole groups of a multiple of 32 elements in registers.
`encode_spans`: groups of any size; a program takes as many as end with a block, reads them twice.
Programs number rows x tiles; all positions are a 64-bit start and 32-bit distances from it.
"""

import triton
import triton.language as tl

from actzip.kernels.triton.device.groups import (
    DITHER,
    NEAREST,
    dequantize,
    inverse,
    load_metadata,
    metadata,
    quantize,
    spread,
    store_metadata,
)
from actzip.kernels.triton.device.numbers import dither, load_seed, narrow, widen
from actzip.kernels.triton.device.planes import put_bytes, put_words, take_octets


@triton.jit
def row_codes(bits_ptr, offsets_ptr, row, n, BITS: tl.constexpr):
    """Bits of a row, and how many bytes its codes start behind those of row 0."""
    if BITS > 0:
        size = (n // 32 * 4 + (n % 32 + 7) // 8) * BITS
        return tl.full([], BITS, tl.int32), row * size
    else:
        start = tl.load(offsets_ptr + row) - tl.load(offsets_ptr)
        return tl.load(bits_ptr + row).to(tl.int32), start


@triton.jit
def tile_of(n, tiles, SIZE: tl.constexpr):
    """Where this program is: row, number in it, its first element there, and how many it has."""
    tile = tl.program_id(0) % tiles
    first = tile.to(tl.int64) * SIZE
    limit = tl.minimum(n - first, SIZE).to(tl.int32)
    return (tl.program_id(0) // tiles).to(tl.int64), tile, first, limit


@triton.jit
def codes_of_tile(
    bytes_ptr, bits_ptr, offsets_ptr, n, row, first, limit, OCTETS: tl.constexpr,
    BITS: tl.constexpr,
):  # fmt: skip
    """The codes of a row's tile (OCTETS, 8), its eights, its elements, and which are there."""
    bits, start = row_codes(bits_ptr, offsets_ptr, row, n, BITS)
    octet = tl.arange(0, OCTETS)
    local = octet[:, None] * 8 + tl.arange(0, 8)[None, :]
    size = (tl.minimum(tl.maximum(limit - octet // 4 * 32, 0), 32) + 7) // 8
    here = bytes_ptr + (start + (first >> 5) * 4 * bits)
    return take_octets(here, octet, size, bits, BITS), octet, local, local < limit


@triton.jit
def put_codes(
    words_ptr, bytes_ptr, start, codes, first, limit, bits,
    BITS: tl.constexpr, ALIGNED: tl.constexpr, TAIL: tl.constexpr, block, block_end,
):  # fmt: skip
    """Codes (blocks, 32) of a row whose codes start at byte `start`; the tile starts at element
    `first`, its blocks are `block` from there, and `limit` of its elements are in the row."""
    count = tl.minimum(tl.maximum(block_end - block * 32, 0), 32)
    here = start + (first >> 5) * 4 * bits
    if ALIGNED:
        put_words(words_ptr + (here >> 2), codes, block, count == 32, bits, BITS)
        if TAIL:
            if limit % 32 != 0:
                size = tl.where(count == 32, 0, (count + 7) // 8)
                put_bytes(bytes_ptr + here, codes, block, size, bits)
    else:
        put_bytes(bytes_ptr + here, codes, block, (count + 7) // 8, bits)


@triton.jit(do_not_specialize=["seed"])
def encode_tiles(
    x_ptr, lo_ptr, step_ptr, words_ptr, bytes_ptr, bits_ptr, offsets_ptr, raw_ptr, seed,
    n, groups, tiles,
    GROUP: tl.constexpr, WIDE: tl.constexpr, COUNT: tl.constexpr, BITS: tl.constexpr,
    ROUNDING: tl.constexpr, ZERO: tl.constexpr, ALIGNED: tl.constexpr, TAIL: tl.constexpr,
    LONG: tl.constexpr,
):  # fmt: skip
    """COUNT groups of GROUP elements a program, GROUP a multiple of 32, WIDE its power of two."""
    SIZE: tl.constexpr = COUNT * GROUP
    row, tile, first, limit = tile_of(n, tiles, SIZE)
    bits, start = row_codes(bits_ptr, offsets_ptr, row, n, BITS)
    levels = (1 << bits) - (2 if ZERO else 1)
    g = tl.arange(0, COUNT)
    c = tl.arange(0, WIDE)[None, :]
    local = g[:, None] * GROUP + c
    inside = (c < GROUP) & (local < limit)
    source = x_ptr + (row * n + first) + local
    if limit == SIZE:
        if GROUP == WIDE:
            x = widen(tl.load(source))
        else:
            x = widen(tl.load(source, mask=c < GROUP, other=0))
    else:
        x = widen(tl.load(source, mask=inside, other=0))
    seen = inside & (x != 0) if ZERO else inside
    lo, hi, bad = spread(x, seen, 1)
    lo, step, raw = metadata(lo, hi, bad, levels)
    at = row * groups + tile.to(tl.int64) * COUNT
    store_metadata(lo_ptr + at, step_ptr + at, g, lo, step, raw, g * GROUP < limit)
    lost = tl.sum(tl.where(raw, tl.minimum(tl.maximum(limit - g * GROUP, 0), GROUP), 0))
    if lost > 0:
        tl.atomic_add(raw_ptr, lost.to(tl.int64))
    if ROUNDING == NEAREST:
        v = x
    else:
        padded = (n + 31) // 32 * 32
        v = dither(load_seed(seed), row * padded + first, local, x.dtype, LONG)
    codes = quantize(
        x, lo[:, None], inverse(step)[:, None], raw[:, None], v, inside, levels, ZERO, ROUNDING
    )
    codes = tl.reshape(codes, (COUNT * WIDE // 32, 32))
    k = tl.arange(0, COUNT * WIDE // 32)
    within = k % (WIDE // 32)
    block = k // (WIDE // 32) * (GROUP // 32) + within
    end = tl.where(within < GROUP // 32, limit, 0)
    put_codes(
        words_ptr, bytes_ptr, start, codes, first, limit, bits, BITS, ALIGNED, TAIL, block, end
    )


@triton.jit
def measure_groups(
    x_ptr, lo_ptr, step_ptr, raw_ptr, count, limit, levels,
    GROUP: tl.constexpr, COUNT: tl.constexpr, WIDE: tl.constexpr, ZERO: tl.constexpr,
    REAL: tl.constexpr,
):  # fmt: skip
    """Metadata of `count` groups that lie one after the other, `limit` elements in all."""
    c = tl.arange(0, WIDE)[None, :]
    for g0 in range(0, count, COUNT):
        g = g0 + tl.arange(0, COUNT)
        lo = tl.full([COUNT], float("inf"), REAL)
        hi = tl.full([COUNT], float("-inf"), REAL)
        bad = tl.full([COUNT], 0, tl.int32)
        for c0 in range(0, GROUP, WIDE):
            local = g[:, None] * GROUP + c0 + c
            inside = (c0 + c < GROUP) & (local < limit) & (g[:, None] < count)
            x = widen(tl.load(x_ptr + local, mask=inside, other=0))
            seen = inside & (x != 0) if ZERO else inside
            low, high, worse = spread(x, seen, 1)
            lo, hi, bad = tl.minimum(lo, low), tl.maximum(hi, high), tl.maximum(bad, worse)
        lo, step, raw = metadata(lo, hi, bad, levels)
        mask = (g * GROUP < limit) & (g < count)
        store_metadata(lo_ptr, step_ptr, g, lo, step, raw, mask)
        lost = tl.where(raw & mask, tl.minimum(limit - g * GROUP, GROUP), 0)
        if tl.sum(lost) > 0:
            tl.atomic_add(raw_ptr, tl.sum(lost).to(tl.int64))


@triton.jit(do_not_specialize=["seed"])
def encode_spans(
    x_ptr, lo_ptr, step_ptr, words_ptr, bytes_ptr, bits_ptr, offsets_ptr, raw_ptr, seed,
    n, groups, tiles,
    GROUP: tl.constexpr, SPAN: tl.constexpr, COUNT: tl.constexpr, WIDE: tl.constexpr,
    BLOCKS: tl.constexpr, BITS: tl.constexpr, ROUNDING: tl.constexpr, ZERO: tl.constexpr,
    ALIGNED: tl.constexpr, TAIL: tl.constexpr, LONG: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    """SPAN groups of any size a program, a multiple of 32 elements in all."""
    SIZE: tl.constexpr = SPAN * GROUP
    row, tile, first, limit = tile_of(n, tiles, SIZE)
    bits, start = row_codes(bits_ptr, offsets_ptr, row, n, BITS)
    levels = (1 << bits) - (2 if ZERO else 1)
    at = row * groups + tile.to(tl.int64) * SPAN
    source = x_ptr + (row * n + first)
    measure_groups(
        source, lo_ptr + at, step_ptr + at, raw_ptr, (limit + GROUP - 1) // GROUP, limit, levels,
        GROUP, COUNT, WIDE, ZERO, REAL,
    )  # fmt: skip
    tl.debug_barrier()  # metadata is read again by other threads of this program
    padded = (n + 31) // 32 * 32
    k = tl.arange(0, BLOCKS)
    for k0 in range(0, (limit + 31) // 32, BLOCKS):
        block = k0 + k
        local = block[:, None] * 32 + tl.arange(0, 32)[None, :]
        inside = local < limit
        x = widen(tl.load(source + local, mask=inside, other=0))
        lo, step, raw = load_metadata(lo_ptr + at, step_ptr + at, local // GROUP, inside)
        if ROUNDING == NEAREST:
            v = x
        else:
            v = dither(load_seed(seed), row * padded + first, local, REAL, LONG)
        codes = quantize(x, lo, inverse(step), raw, v, inside, levels, ZERO, ROUNDING)
        put_codes(
            words_ptr, bytes_ptr, start, codes, first, limit, bits, BITS, ALIGNED, TAIL, block,
            limit,
        )  # fmt: skip


@triton.jit(do_not_specialize=["seed"])
def decode_tiles(
    bytes_ptr, lo_ptr, step_ptr, bits_ptr, offsets_ptr, out_ptr, seed,
    n, groups, tiles,
    GROUP: tl.constexpr, OCTETS: tl.constexpr, BITS: tl.constexpr, ROUNDING: tl.constexpr,
    ZERO: tl.constexpr, LONG: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """OCTETS eights of elements a program. MASK: 1 where the code is not zero's, else 0."""
    SIZE: tl.constexpr = OCTETS * 8
    KIND: tl.constexpr = out_ptr.dtype.element_ty
    row, _, first, limit = tile_of(n, tiles, SIZE)
    codes, octet, local, inside = codes_of_tile(
        bytes_ptr, bits_ptr, offsets_ptr, n, row, first, limit, OCTETS, BITS
    )
    if MASK:
        x = (codes > 0).to(tl.float64 if KIND == tl.float64 else tl.float32)
    else:
        at = row * groups + first // GROUP
        over = (first % GROUP).to(tl.int32)
        if GROUP % 8 == 0:  # eight elements are in one group
            place = (over + octet * 8) // GROUP
            lo, step, _ = load_metadata(lo_ptr + at, step_ptr + at, place, octet * 8 < limit)
            lo, step = lo[:, None], step[:, None]
        else:
            lo, step, _ = load_metadata(lo_ptr + at, step_ptr + at, (over + local) // GROUP, inside)
        if ROUNDING == DITHER:
            padded = (n + 31) // 32 * 32
            v = dither(load_seed(seed), row * padded + first, local, lo.dtype, LONG)
        else:
            v = lo
        x = dequantize(codes, lo, step, v, KIND, ZERO, ROUNDING)
    target = out_ptr + (row * n + first) + local
    if limit == SIZE:
        tl.store(target, narrow(x, KIND))
    else:
        tl.store(target, narrow(x, KIND), mask=inside)


@triton.jit
def move_raw(
    x_ptr, raw_ptr, step_ptr, n, groups, count, room,
    GROUP: tl.constexpr, WIDE: tl.constexpr, SIZE: tl.constexpr, NAN: tl.constexpr,
    STORE: tl.constexpr,
):  # fmt: skip
    """One program for all of `count` groups: the bytes of raw ones, in their order, to (STORE) or
    from raw_ptr, which has `room` of them; all sizes are bytes. STORE: what is left of the room
    becomes zero, and a group that finds none gets a step that makes it NaN."""
    lane = tl.arange(0, SIZE)
    ends = tl.full([], 0, tl.int64)
    filled = tl.full([], 0, tl.int64)
    for g0 in range(0, count, SIZE):
        g = g0 + lane
        step = tl.load(step_ptr + g, mask=g < count, other=0)
        raw = (g < count) & (step == -1)
        if tl.max(raw.to(tl.int32)) > 0:
            inner = (g % groups).to(tl.int64) * GROUP
            size = tl.where(raw, tl.minimum(n - inner, GROUP), 0)
            end = ends + tl.cumsum(size, axis=0)
            fits = raw & (end <= room)
            if STORE:
                tl.store(step_ptr + g, tl.full([SIZE], NAN, step.dtype), mask=raw & (end > room))
            last = -1
            for _ in range(tl.sum(fits.to(tl.int32))):
                last = tl.min(tl.where(fits & (lane > last), lane, SIZE))
                at = lane == last
                length = tl.sum(tl.where(at, size, 0))
                begin = tl.sum(tl.where(at, end - size, 0))
                row = ((g0 + last) // groups).to(tl.int64)
                source = x_ptr + (row * n + tl.sum(tl.where(at, inner, 0)))
                for c0 in range(0, GROUP, WIDE):
                    c = c0 + tl.arange(0, WIDE)
                    mask = c < length
                    if STORE:
                        tl.store(raw_ptr + begin + c, tl.load(source + c, mask=mask), mask=mask)
                    else:
                        tl.store(source + c, tl.load(raw_ptr + begin + c, mask=mask), mask=mask)
            filled = tl.maximum(filled, tl.max(tl.where(fits, end, 0)))
            ends += tl.sum(size)
    if STORE:
        for r0 in range(0, room, 4 * SIZE):
            r = r0 + tl.arange(0, 4 * SIZE)
            tl.store(raw_ptr + r, tl.zeros([4 * SIZE], tl.uint8), mask=(r >= filled) & (r < room))
