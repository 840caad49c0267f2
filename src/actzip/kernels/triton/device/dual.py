"""Block averages and a group code of what is left, on the device (reference/dual.py).

Maps lie one after the other (CHANNELS = 0): one launch; a program takes maps that end with a block
of codes, and averages, measures and codes them. Or side by side: one launch averages and measures
the maps of some channels, a second codes in the order of memory. A map is D x H x W elements in
BD x BH x BW blocks of KD x KH x KW.
"""

import triton
import triton.language as tl

from actzip.kernels.triton.device.group import codes_of_tile, put_codes, row_codes, tile_of
from actzip.kernels.triton.device.groups import (
    DITHER,
    NEAREST,
    dequantize,
    inverse,
    largest_of,
    load_metadata,
    metadata,
    quantize,
    spread,
    store_metadata,
)
from actzip.kernels.triton.device.numbers import (
    bits_of,
    dither,
    divide,
    from_bits,
    from_half,
    load_seed,
    low_half,
    narrow,
    not_zero,
    upper_half,
    widen,
)


@triton.jit
def upper_near(x):
    """x rounded to the nearest value of half its bits, ties to even."""
    bits, low = bits_of(x), low_half(x)
    shift = 32 if x.dtype == tl.float64 else 16
    return from_bits((bits + (low >> 1) + ((bits >> shift) & 1)) & ~low)


@triton.jit
def block_of(i, SIZE: tl.constexpr, K: tl.constexpr, BLOCKS: tl.constexpr, STRETCH: tl.constexpr):
    """The block whose average stands at position i."""
    if STRETCH:
        return i * BLOCKS // SIZE
    else:
        return i // K


@triton.jit
def mean_at(p, MAP: tl.constexpr, STRETCH: tl.constexpr):
    """The number of the average that stands at element p of a map."""
    D: tl.constexpr = MAP[0]
    H: tl.constexpr = MAP[1]
    W: tl.constexpr = MAP[2]
    BH: tl.constexpr = MAP[7]
    BW: tl.constexpr = MAP[8]
    d = block_of(p // (H * W), D, MAP[3], MAP[6], STRETCH)
    h = block_of(p // W % H, H, MAP[4], BH, STRETCH)
    w = block_of(p % W, W, MAP[5], BW, STRETCH)
    return (d * BH + h) * BW + w


@triton.jit
def average(
    x_ptr, mean_ptr, count, LANES: tl.constexpr, SPAN: tl.constexpr, GS: tl.constexpr,
    PS: tl.constexpr, AG: tl.constexpr, AB: tl.constexpr, MAP: tl.constexpr, ZERO: tl.constexpr,
    REAL: tl.constexpr,
):  # fmt: skip
    """The averages of `count` maps: a lane sums a block in the order of the reference, columns
    first. Map g's element p is at g * GS + p * PS, its average b at g * AG + b * AB."""
    H: tl.constexpr = MAP[1]
    W: tl.constexpr = MAP[2]
    BH: tl.constexpr = MAP[7]
    BW: tl.constexpr = MAP[8]
    AVERAGES: tl.constexpr = MAP[6] * BH * BW
    for t0 in range(0, SPAN * AVERAGES, LANES):
        t = t0 + tl.arange(0, LANES)
        if PS == 1:
            g, b = t // AVERAGES, t % AVERAGES
        else:  # neighbours in memory are neighbouring maps
            g, b = t % SPAN, t // SPAN
        valid = (g < count) & (b < AVERAGES)
        d0, h0, w0 = b // (BH * BW) * MAP[3], b // BW % BH * MAP[4], b % BW * MAP[5]
        total = tl.zeros([LANES], REAL)
        seen = tl.zeros([LANES], REAL)
        for w in range(MAP[5]):
            column = tl.zeros([LANES], REAL)
            for d in range(MAP[3]):
                for h in range(MAP[4]):
                    inside = valid & (d0 + d < MAP[0]) & (h0 + h < H) & (w0 + w < W)
                    p = ((d0 + d) * H + h0 + h) * W + w0 + w
                    x = widen(tl.load(x_ptr + (g * GS + p * PS), mask=inside, other=0))
                    column += x
                    seen += (inside & (x != 0) if ZERO else inside).to(REAL)
            total += column
        mean = tl.where(seen != 0, divide(total, tl.where(seen != 0, seen, 1.0)), 0.0)
        tl.store(mean_ptr + g * AG + b * AB, upper_half(upper_near(mean)), mask=valid)


@triton.jit
def rest_of(x, mean, ZERO: tl.constexpr):
    """x - mean; with ZERO, never zero where x is not."""
    rest = x - mean
    if ZERO:
        share = 8.673617379884035e-19 if x.dtype == tl.float64 else 9.313225746154785e-10
        rest = tl.where(rest != 0, rest, not_zero(x * share, x.dtype))
        rest = tl.where(x != 0, rest, 0.0)
    return rest


@triton.jit
def measure_maps(
    x_ptr, mean_ptr, lo_ptr, step_ptr, raw_ptr, count, levels,
    SPAN: tl.constexpr, COUNT: tl.constexpr, WIDE: tl.constexpr, GS: tl.constexpr,
    PS: tl.constexpr, AG: tl.constexpr, AB: tl.constexpr, MAP: tl.constexpr,
    STRETCH: tl.constexpr, ZERO: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    """Metadata of maps whose averages are there; those of raw maps become zero."""
    SIZE: tl.constexpr = MAP[0] * MAP[1] * MAP[2]
    AVERAGES: tl.constexpr = MAP[6] * MAP[7] * MAP[8]
    c = tl.arange(0, WIDE)[None, :]
    for g0 in range(0, SPAN, COUNT):
        g = g0 + tl.arange(0, COUNT)
        lo = tl.full([COUNT], float("inf"), REAL)
        hi = tl.full([COUNT], float("-inf"), REAL)
        bad = tl.full([COUNT], 0, tl.int32)
        for p0 in range(0, SIZE, WIDE):
            p = p0 + c
            inside = (p < SIZE) & (g < count)[:, None]
            x = widen(tl.load(x_ptr + (g[:, None] * GS + p * PS), mask=inside, other=0))
            at = g[:, None] * AG + mean_at(p, MAP, STRETCH) * AB
            mean = from_half(tl.load(mean_ptr + at, mask=inside, other=0))
            rest = rest_of(x, mean, ZERO)
            seen = inside & (rest != 0) if ZERO else inside
            low, high, worse = spread(rest, seen, 1)
            lo, hi, bad = tl.minimum(lo, low), tl.maximum(hi, high), tl.maximum(bad, worse)
        for b0 in range(0, AVERAGES, WIDE):
            there = (b0 + c < AVERAGES) & (g < count)[:, None]
            at = g[:, None] * AG + (b0 + c) * AB
            mean = from_half(tl.load(mean_ptr + at, mask=there, other=0))
            insane = there & ~(tl.abs(mean) <= largest_of(REAL))
            bad = tl.maximum(bad, tl.max(insane.to(tl.int32), axis=1))
        lo, step, raw = metadata(lo, hi, bad, levels)
        store_metadata(lo_ptr, step_ptr, g, lo, step, raw, g < count)
        lost = tl.sum((raw & (g < count)).to(tl.int32))
        if lost > 0:
            tl.atomic_add(raw_ptr, lost.to(tl.int64) * SIZE)
            for b0 in range(0, AVERAGES, WIDE):
                there = (b0 + c < AVERAGES) & (raw & (g < count))[:, None]
                at = g[:, None] * AG + (b0 + c) * AB
                tl.store(mean_ptr + at, tl.full([COUNT, WIDE], 0, lo_ptr.dtype.element_ty), there)


@triton.jit
def codes_of_maps(
    x, e, mean_ptr, lo_ptr, step_ptr, v, inside, levels,
    CHANNELS: tl.constexpr, AG: tl.constexpr, AB: tl.constexpr, MAP: tl.constexpr,
    STRETCH: tl.constexpr, ROUNDING: tl.constexpr, ZERO: tl.constexpr,
):  # fmt: skip
    """Codes of elements e from where the pointers begin, in the order of memory."""
    SIZE: tl.constexpr = MAP[0] * MAP[1] * MAP[2]
    g, p = (e % CHANNELS, e // CHANNELS) if CHANNELS > 0 else (e // SIZE, e % SIZE)
    at = g * AG + mean_at(p, MAP, STRETCH) * AB
    mean = from_half(tl.load(mean_ptr + at, mask=inside, other=0))
    lo, step, raw = load_metadata(lo_ptr, step_ptr, g, inside)
    rest = tl.where(raw, x, rest_of(x, mean, ZERO))  # averages of raw maps are gone
    return quantize(rest, lo, inverse(step), raw, v, inside, levels, ZERO, ROUNDING)


@triton.jit(do_not_specialize=["seed"])
def encode_maps(
    x_ptr, mean_ptr, lo_ptr, step_ptr, words_ptr, bytes_ptr, raw_ptr, seed, maps, n,
    SPAN: tl.constexpr, LANES: tl.constexpr, COUNT: tl.constexpr, WIDE: tl.constexpr,
    BLOCKS: tl.constexpr, MAP: tl.constexpr, STRETCH: tl.constexpr, BITS: tl.constexpr,
    ROUNDING: tl.constexpr, ZERO: tl.constexpr, ALIGNED: tl.constexpr, TAIL: tl.constexpr,
    LONG: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    """SPAN maps a program, one after the other, a multiple of 32 elements in all."""
    SIZE: tl.constexpr = MAP[0] * MAP[1] * MAP[2]
    AVERAGES: tl.constexpr = MAP[6] * MAP[7] * MAP[8]
    levels = tl.full([], (1 << BITS) - (2 if ZERO else 1), tl.int32)
    bits = tl.full([], BITS, tl.int32)
    m0 = tl.program_id(0).to(tl.int64) * SPAN
    first = m0 * SIZE
    count = tl.minimum(maps - m0, SPAN).to(tl.int32)
    limit = count * SIZE
    source = x_ptr + first
    means = mean_ptr + m0 * AVERAGES
    average(source, means, count, LANES, SPAN, SIZE, 1, AVERAGES, 1, MAP, ZERO, REAL)
    tl.debug_barrier()  # averages are read again by other threads of this program
    measure_maps(
        source, means, lo_ptr + m0, step_ptr + m0, raw_ptr, count, levels,
        SPAN, COUNT, WIDE, SIZE, 1, AVERAGES, 1, MAP, STRETCH, ZERO, REAL,
    )  # fmt: skip
    tl.debug_barrier()
    k = tl.arange(0, BLOCKS)
    for k0 in range(0, (limit + 31) // 32, BLOCKS):
        block = k0 + k
        local = block[:, None] * 32 + tl.arange(0, 32)[None, :]
        inside = local < limit
        x = widen(tl.load(source + local, mask=inside, other=0))
        v = x if ROUNDING == NEAREST else dither(load_seed(seed), first, local, REAL, LONG)
        codes = codes_of_maps(
            x, local, means, lo_ptr + m0, step_ptr + m0, v, inside, levels,
            0, AVERAGES, 1, MAP, STRETCH, ROUNDING, ZERO,
        )  # fmt: skip
        put_codes(
            words_ptr, bytes_ptr, first * 0, codes, first, limit, bits, BITS, ALIGNED, TAIL,
            block, limit,
        )  # fmt: skip


@triton.jit
def measure_last(
    x_ptr, mean_ptr, lo_ptr, step_ptr, raw_ptr, tiles, n,
    CHANNELS: tl.constexpr, SPAN: tl.constexpr, LANES: tl.constexpr, WIDE: tl.constexpr,
    MAP: tl.constexpr, STRETCH: tl.constexpr, LEVELS: tl.constexpr, ZERO: tl.constexpr,
    REAL: tl.constexpr,
):  # fmt: skip
    """Averages and metadata of SPAN maps that lie side by side."""
    AVERAGES: tl.constexpr = MAP[6] * MAP[7] * MAP[8]
    sample = (tl.program_id(0) // tiles).to(tl.int64)
    channel = tl.program_id(0) % tiles * SPAN
    count = tl.minimum(CHANNELS - channel, SPAN)
    source = x_ptr + (sample * n + channel)
    means = mean_ptr + (sample * (AVERAGES * CHANNELS) + channel)
    at = sample * CHANNELS + channel
    levels = tl.full([], LEVELS, tl.int32)
    average(source, means, count, LANES, SPAN, 1, CHANNELS, 1, CHANNELS, MAP, ZERO, REAL)
    tl.debug_barrier()  # averages are read again by other threads of this program
    measure_maps(
        source, means, lo_ptr + at, step_ptr + at, raw_ptr, count, levels,
        SPAN, SPAN, WIDE, 1, CHANNELS, 1, CHANNELS, MAP, STRETCH, ZERO, REAL,
    )  # fmt: skip


@triton.jit(do_not_specialize=["seed"])
def code_last(
    x_ptr, mean_ptr, lo_ptr, step_ptr, words_ptr, bytes_ptr, seed, tiles, n,
    CHANNELS: tl.constexpr, BLOCKS: tl.constexpr, MAP: tl.constexpr, STRETCH: tl.constexpr,
    BITS: tl.constexpr, ROUNDING: tl.constexpr, ZERO: tl.constexpr, ALIGNED: tl.constexpr,
    TAIL: tl.constexpr, LONG: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    """Codes of maps that lie side by side, BLOCKS blocks of a sample a program."""
    AVERAGES: tl.constexpr = MAP[6] * MAP[7] * MAP[8]
    row = (tl.program_id(0) // tiles).to(tl.int64)
    first = (tl.program_id(0) % tiles) * (BLOCKS * 32)
    bits, start = row_codes(lo_ptr, lo_ptr, row, n, BITS)
    levels = (1 << bits) - (2 if ZERO else 1)
    limit = tl.minimum(n - first, BLOCKS * 32)
    block = tl.arange(0, BLOCKS)
    local = block[:, None] * 32 + tl.arange(0, 32)[None, :]
    inside = local < limit
    x = widen(tl.load(x_ptr + (row * n + first) + local, mask=inside, other=0))
    padded = (n + 31) // 32 * 32
    v = (
        x
        if ROUNDING == NEAREST
        else dither(load_seed(seed), row * padded + first, local, REAL, LONG)
    )
    codes = codes_of_maps(
        x, first + local, mean_ptr + row * (AVERAGES * CHANNELS), lo_ptr + row * CHANNELS,
        step_ptr + row * CHANNELS, v, inside, levels,
        CHANNELS, 1, CHANNELS, MAP, STRETCH, ROUNDING, ZERO,
    )  # fmt: skip
    put_codes(
        words_ptr, bytes_ptr, start, codes, first.to(tl.int64), limit, bits, BITS, ALIGNED, TAIL,
        block, limit,
    )  # fmt: skip


@triton.jit(do_not_specialize=["seed"])
def decode_maps(
    bytes_ptr, mean_ptr, lo_ptr, step_ptr, out_ptr, seed, tiles, n,
    CHANNELS: tl.constexpr, OCTETS: tl.constexpr, MAP: tl.constexpr, STRETCH: tl.constexpr,
    BITS: tl.constexpr, ROUNDING: tl.constexpr, ZERO: tl.constexpr, LONG: tl.constexpr,
    REAL: tl.constexpr,
):  # fmt: skip
    """OCTETS eights of elements a program, in either order."""
    TILE: tl.constexpr = OCTETS * 8
    KIND: tl.constexpr = out_ptr.dtype.element_ty
    SIZE: tl.constexpr = MAP[0] * MAP[1] * MAP[2]
    AVERAGES: tl.constexpr = MAP[6] * MAP[7] * MAP[8]
    row, _, first, limit = tile_of(n, tiles, TILE)
    codes, octet, local, inside = codes_of_tile(
        bytes_ptr, lo_ptr, lo_ptr, n, row, first, limit, OCTETS, BITS
    )
    if CHANNELS > 0:
        m0 = row * CHANNELS
        e = first.to(tl.int32) + local
        g, p = e % CHANNELS, e // CHANNELS
        at = g + mean_at(p, MAP, STRETCH) * CHANNELS
    else:
        m0 = first // SIZE
        e = (first % SIZE).to(tl.int32) + local
        g, p = e // SIZE, e % SIZE
        at = g * AVERAGES + mean_at(p, MAP, STRETCH)
    means = mean_ptr + m0 * AVERAGES
    if CHANNELS == 0 and SIZE % 8 == 0:  # eight elements are in one map
        g8 = ((first % SIZE).to(tl.int32) + octet * 8) // SIZE
        lo, step, _ = load_metadata(lo_ptr + m0, step_ptr + m0, g8, octet * 8 < limit)
        lo, step = lo[:, None], step[:, None]
    else:
        lo, step, _ = load_metadata(lo_ptr + m0, step_ptr + m0, g, inside)
    if CHANNELS == 0 and MAP[2] % 8 == 0 and MAP[5] % 8 == 0 and not STRETCH:  # in one block
        e8 = (first % SIZE).to(tl.int32) + octet * 8
        at8 = e8 // SIZE * AVERAGES + mean_at(e8 % SIZE, MAP, STRETCH)
        mean = from_half(tl.load(means + at8, mask=octet * 8 < limit, other=0))[:, None]
    else:
        mean = from_half(tl.load(means + at, mask=inside, other=0))
    if ROUNDING == DITHER:
        padded = (n + 31) // 32 * 32
        v = dither(load_seed(seed), row * padded + first, local, REAL, LONG)
    else:
        v = mean
    x = dequantize(codes, lo, step, v, REAL, ZERO, ROUNDING) + mean
    if ZERO:
        x = tl.where(codes > 0, not_zero(x, KIND), 0.0)
    target = out_ptr + (row * n + first) + local
    if limit == TILE:
        tl.store(target, narrow(x, KIND))
    else:
        tl.store(target, narrow(x, KIND), mask=inside)
