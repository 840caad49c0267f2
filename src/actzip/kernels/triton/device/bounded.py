"""Error-bounded codes on the device (reference/bounded.py): a chunk of 4096 values a program.

Encoding is three launches: `quantize_chunks` finds symbols, headers, levels and sizes,
`place_chunks` adds the sizes up, `pack_chunks` writes the bytes.
"""

import triton
import triton.language as tl

from actzip.kernels.triton.device.chunks import (
    as_stored,
    channel_of,
    chunk_blocks,
    merge,
    raw_bits,
    take,
    take_raw,
)
from actzip.kernels.triton.device.numbers import bf16_bits, dither, divide, load_seed, widen


@triton.jit
def scale_of(level):
    """The step of a level over twice the error."""
    found = tl.where(level == 0, 1 - 1 / 1024, tl.where(level == 1, 1 - 1 / 64, 0.9375))
    found = tl.where(level == 3, 0.875, found)
    found = tl.where(level == 4, 0.75, found)
    return tl.where(level == 5, 0.625, tl.where(level > 5, 0.5, found))


@triton.jit
def level_of(ratio, ROUNDOFF: tl.constexpr):
    """The first level whose margin holds the rounding of a value that is `ratio` steps large."""
    need = (ratio.to(tl.float64) + 0.5) * 2 * tl.full([], ROUNDOFF, tl.float64)
    level = (need > 1 / 1024).to(tl.int32) + (need > 1 / 64).to(tl.int32)
    level += (need > 1 / 16).to(tl.int32) + (need > 0.125).to(tl.int32)
    return level + (need > 0.25).to(tl.int32) + (need > 0.375).to(tl.int32)


@triton.jit
def bit_width(v):
    width = v * 0
    for k in tl.static_range(31):
        width += (v >= (1 << k)).to(tl.int32)
    return width


@triton.jit
def zigzag(s):
    return tl.where(s < 0, -2 * s - 1, 2 * s)


@triton.jit
def unzigzag(u):
    return tl.where(u & 1 == 1, -(u >> 1) - 1, u >> 1)


@triton.jit
def residuals(symbols, symbols_ptr, base, local, width, height, WIDTH: tl.constexpr):
    """Differences from the left neighbour, or in maps from three; none outside of chunk or map."""
    here = symbols_ptr + base
    if WIDTH:
        i = base + local.to(tl.int64)
        column = i % width > 0
        row = i // width % height > 0
        left, above = column & (local > 0), row & (local >= width)
        corner = column & row & (local > width)
        found = symbols - tl.load(here + local - 1, mask=left, other=0)
        found -= tl.load(here + local - width, mask=above, other=0)
        return found + tl.load(here + local - width - 1, mask=corner, other=0)
    else:
        return symbols - tl.load(here + local - 1, mask=local > 0, other=0)


@triton.jit(do_not_specialize=["seed"])
def quantize_chunks(
    x_ptr, bounds_ptr, symbols_ptr, headers_ptr, levels_ptr, sizes_ptr, seed, words_ptr, n, inner,
    channels, width, height, start, words,
    ROUNDOFF: tl.constexpr, CAP: tl.constexpr, DITHERED: tl.constexpr, WIDTH: tl.constexpr,
    LARGE: tl.constexpr, LONG: tl.constexpr, ENTROPY: tl.constexpr,
):  # fmt: skip
    """symbols_ptr: room for whole chunks (int32); zeros in raw blocks. The bytes of all blocks go
    behind `start`, where the headers end, in words_ptr's memory: each program clears as many of
    them as its chunk may have.
    ENTROPY: headers are 1 for raw blocks, else 0, a block that is raw because packing gains nothing
    is none, and no words are cleared."""
    KIND: tl.constexpr = x_ptr.dtype.element_ty
    ITEM: tl.constexpr = KIND.primitive_bitwidth // 8
    chunk, base, b, local, limit, inside = chunk_blocks(n)
    if not ENTROPY:
        first, own = (start + 3) // 4, 1024 * ITEM
        for k in tl.static_range(ITEM):
            at = first + chunk.to(tl.int64) * own + k * 1024 + tl.arange(0, 1024)
            tl.store(words_ptr + at, tl.zeros([1024], tl.int32), mask=at < words)
        if chunk == tl.num_programs(0) - 1:  # what lies around them: headers are bytes
            end = first + tl.num_programs(0).to(tl.int64) * own + tl.arange(0, 16)
            tl.store(words_ptr + end, tl.zeros([16], tl.int32), mask=end < words)
            byte = (n + 63) // 64 + tl.arange(0, 4)
            beyond = tl.arange(0, 4) < first * 4 - start
            tl.store(headers_ptr + byte, tl.zeros([4], tl.uint8), mask=beyond)
    x = widen(tl.load(x_ptr + base + local, mask=inside, other=0))
    bound = tl.load(bounds_ptr + channel_of(base, local, inner, channels, LARGE))
    one = bound * 0.0 + 1.0
    ratio = tl.abs(x * divide(one, (bound * 2) * scale_of(b[:, None] * 0).to(x.dtype)))
    most = tl.max(tl.max(tl.where(ratio < float("inf"), ratio, 0.0), axis=1), axis=0)
    level = level_of(most, ROUNDOFF)
    step = (bound * 2) * scale_of(level).to(x.dtype)
    t = x * divide(one, step)
    v = dither(load_seed(seed), base, local, x.dtype, LONG) if DITHERED else x * 0.0
    u = t + v if DITHERED else t
    magic = 6755399441055744.0 if x.dtype == tl.float64 else 12582912.0
    r = (u + magic) - magic
    back = as_stored((r - v if DITHERED else r) * step, KIND)
    good = (tl.abs(x - back) <= bound) & (tl.abs(t) < CAP)
    if DITHERED and ITEM == 2:
        good &= (back != 0) | (x == 0)
    q = tl.where(good, r, 0.0).to(tl.int32)
    s = tl.where(q >= 0, q + 1, q) if DITHERED else q
    s = tl.where(x == 0, 0, s)
    raw = tl.max((~good).to(tl.int32), axis=1) > 0
    s = tl.where(raw[:, None], 0, s)
    kept, lost = s, raw
    length = tl.minimum(tl.maximum(limit - b * 64, 0), 64)
    negative = tl.max((s < 0).to(tl.int32), axis=1)
    largest = tl.max(tl.where(negative[:, None] > 0, zigzag(s), s), axis=1)
    wide, short = bit_width(largest), bit_width(tl.maximum(largest - 1, 0))
    count = tl.sum((s != 0).to(tl.int32), axis=1)
    plain = (length * wide + 7) // 8
    bitmap = (length + 7) // 8 + (count * short + 7) // 8
    best = tl.minimum(plain, bitmap)
    raw = raw | ((wide > 0) & (best >= length * ITEM))
    s = tl.where(raw[:, None], 0, s)
    tl.store(symbols_ptr + base + local, s)
    tl.debug_barrier()  # neighbours are read by other threads of this program
    steps = zigzag(residuals(s, symbols_ptr, base, local, width, height, WIDTH))
    delta_wide = bit_width(tl.max(tl.where(inside, steps, 0), axis=1))
    delta = (length * delta_wide + 7) // 8
    use_delta = (wide > 0) & (4 * count >= 3 * length) & (delta < best)
    use_map = (wide > 0) & (bitmap < plain) & ~use_delta
    header = tl.where(use_map, (2 + negative) * 32 + short, negative * 32 + wide)
    header = tl.where(use_delta, 128 + delta_wide, header)
    size = tl.where(use_delta, delta, tl.where(use_map, bitmap, plain))
    header = tl.where(raw, 255, header)
    size = tl.where(raw, length * ITEM, size)
    if ENTROPY:
        header = lost.to(tl.int32)
        tl.debug_barrier()  # all neighbours have been read
        tl.store(symbols_ptr + base + local, kept)
    tl.store(headers_ptr + chunk.to(tl.int64) * 64 + b, header.to(tl.uint8), mask=length > 0)
    tl.store(levels_ptr + chunk, level.to(tl.int64))
    tl.store(sizes_ptr + chunk, tl.sum(size).to(tl.int64))


@triton.jit
def place_chunks(
    levels_ptr, sizes_ptr, begins_ptr, table_ptr, total_ptr, start, chunks, SIZE: tl.constexpr
):
    """Sums of the sizes before each chunk, by one program."""
    done = tl.full([], 0, tl.int64)
    for first in range(0, chunks, SIZE):
        i = first + tl.arange(0, SIZE)
        there = i < chunks
        size = tl.load(sizes_ptr + i, mask=there, other=0)
        begin = done + tl.cumsum(size, axis=0) - size
        tl.store(begins_ptr + i, begin, mask=there)
        level = tl.load(levels_ptr + i, mask=there, other=0)
        tl.store(table_ptr + i, begin | (level << 56), mask=there)
        done += tl.sum(size)
    tl.store(total_ptr, done + start)


@triton.jit
def pack_chunks(
    x_ptr, symbols_ptr, headers_ptr, begins_ptr, words_ptr, n, width, height, start,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """The blocks of a chunk into words of zeros, from byte begins_ptr[chunk] behind `start` on."""
    KIND: tl.constexpr = x_ptr.dtype.element_ty
    ITEM: tl.constexpr = KIND.primitive_bitwidth // 8
    chunk, base, b, local, limit, inside = chunk_blocks(n)
    e = tl.arange(0, 64)[None, :]
    length = tl.minimum(tl.maximum(limit - b * 64, 0), 64)
    at = headers_ptr + chunk.to(tl.int64) * 64 + b
    header = tl.load(at, mask=length > 0, other=0).to(tl.int32)
    raw, kind, wide = header == 255, header // 32, header % 32
    is_map = (kind // 2 == 1) & ~raw
    s = tl.load(symbols_ptr + base + local)
    steps = zigzag(residuals(s, symbols_ptr, base, local, width, height, WIDTH))
    codes = tl.where((kind % 2 == 1)[:, None], zigzag(s), s)
    codes = tl.where(is_map[:, None], tl.maximum(codes - 1, 0), codes)
    codes = tl.where(((kind == 4) & ~raw)[:, None], steps, codes)
    present = inside & ~raw[:, None] & ((s != 0) | ~is_map[:, None])
    there = present.to(tl.int32)
    map_size = tl.where(is_map, (length + 7) // 8, 0)
    size = (tl.sum(there, axis=1) * wide + 7) // 8 + map_size
    size = tl.where(raw, length * ITEM, size)
    byte = start + tl.load(begins_ptr + chunk)
    words_ptr += byte >> 2
    block = (byte & 3).to(tl.int32) * 8 + (tl.cumsum(size, axis=0) - size) * 8
    before = (tl.cumsum(there, axis=1) - there) * wide[:, None]
    place = (block + map_size * 8)[:, None] + before
    merge(words_ptr, place, codes.to(tl.uint32), present & (wide > 0)[:, None])
    one = tl.full([64, 64], 1, tl.uint32)
    merge(words_ptr, block[:, None] + e, one, present & is_map[:, None])
    kept = inside & raw[:, None]
    if tl.max(raw.to(tl.int32)) > 0:
        bits = raw_bits(tl.load(x_ptr + base + local, mask=kept, other=0))
        for k in tl.static_range(ITEM):
            octet = ((bits >> (8 * k)) & 255).to(tl.uint32)
            merge(words_ptr, block[:, None] + (e * ITEM + k) * 8, octet, kept)


@triton.jit
def add_up_in_maps(s, last, delta, here, base, first, width, height, LARGE: tl.constexpr):
    """Symbols of a block (64) from their differences where `delta` is set, and the last one's
    difference from the symbol above it, which the next block begins with.

    That difference d is the sum of the residuals in its row, so a stretch of no more than `width`
    elements, in which at most one row begins, is one running sum. Symbols go through memory: the
    row above may be of any block before.
    """
    e = tl.arange(0, 64)
    local = first + e
    i = base + local.to(tl.int64) if LARGE else base.to(tl.int32) + local
    row = (i // width % height > 0) & (local >= width)
    starts = (i % width == 0) | (local == 0)
    stretch = tl.minimum(width, 64).to(tl.int32)
    done = s
    for begin in range(0, 64, stretch):
        mine = (e >= begin) & (e < begin + stretch)
        above = tl.load(here + local - width, mask=mine & row, other=0)
        sums = tl.cumsum(tl.where(mine, s, 0), axis=0)
        fresh = mine & starts
        at = tl.max(tl.where(fresh, e, -1))
        before = tl.sum(tl.where(mine & (e < at), s, 0))
        added = above + tl.where(e >= at, tl.where(at < 0, sums + last, sums - before), sums + last)
        done = tl.where(mine, tl.where(delta, added, s), done)
        tl.store(here + local, done, mask=mine)
        tl.debug_barrier()  # the next stretch may lie under this one
        end = tl.minimum(begin + stretch, 64) - 1
        last = tl.sum(tl.where(e == end, done - above, 0))
    return done, last


@triton.jit(do_not_specialize=["seed"])
def decode_chunks(
    data_ptr, table_ptr, headers_ptr, bounds_ptr, out_ptr, raw_ptr, symbols_ptr, seed, n, inner,
    channels, size, width, height,
    DITHERED: tl.constexpr, WIDTH: tl.constexpr, LARGE: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """A chunk a program, block after block. WIDTH: differences are those of maps, and symbols_ptr
    is room for whole chunks of symbols (int32)."""
    KIND: tl.constexpr = out_ptr.dtype.element_ty
    ITEM: tl.constexpr = KIND.primitive_bitwidth // 8
    chunk = tl.program_id(0)
    base = chunk.to(tl.int64) * 4096
    limit = tl.minimum(n - base, 4096).to(tl.int32)
    e = tl.arange(0, 64)
    entry = tl.load(table_ptr + chunk)
    at = entry & 0xFFFFFFFFFFFFFF
    level = ((entry >> 56) & 255).to(tl.int32)
    last = tl.full([], 0, tl.int32)
    for first in range(0, limit, 64):
        length = tl.minimum(limit - first, 64)
        inside = e < length
        header = tl.load(headers_ptr + chunk.to(tl.int64) * 64 + first // 64).to(tl.int32)
        raw = header == 255
        kind, wide = header // 32, header % 32
        is_map = (kind // 2 == 1) & (header != 255)
        mapped = take(data_ptr, at * 8 + e.to(tl.int64), size, inside & is_map, 5, tl.uint64) & 1
        present = inside & ((mapped != 0) | (is_map == 0)) & (header != 255)
        map_size = tl.where(is_map, (length + 7) // 8, 0)
        there = present.to(tl.int32)
        place = (at + map_size.to(tl.int64)) * 8
        place += ((tl.cumsum(there, axis=0) - there) * wide).to(tl.int64)
        keep = ((1 << wide) - 1).to(tl.uint64)
        code = (take(data_ptr, place, size, present & (wide > 0), 5, tl.uint64) & keep).to(tl.int32)
        code = tl.where(present, code + is_map.to(tl.int32), 0)
        s = tl.where((kind % 2 == 1) | (kind == 4), unzigzag(code), code)
        if WIDTH:
            s = tl.where(inside & (header != 255), s, 0)
            here = symbols_ptr + base
            delta = (kind == 4) & (header != 255)
            s, last = add_up_in_maps(s, last, delta, here, base, first, width, height, LARGE)
        else:
            summed = tl.cumsum(s, axis=0) + last
            s = tl.where((kind == 4) & (header != 255), summed, s)
            s = tl.where(inside & (header != 255), s, 0)
            last = tl.sum(tl.where(e == 63, s, 0))
        bound = tl.load(bounds_ptr + channel_of(base, first + e, inner, channels, LARGE))
        step = (bound * 2) * scale_of(level).to(bound.dtype)
        q = (tl.where(s > 0, s - 1, s) if DITHERED else s).to(bound.dtype)
        if DITHERED:
            q -= dither(load_seed(seed), base, first + e, bound.dtype, LONG)
        x = tl.where(s == 0, 0.0, q * step)
        y = bf16_bits(x) if KIND == tl.int16 else x.to(KIND)
        tl.store(out_ptr + base + first + e, y, mask=inside & (header != 255))
        if raw:
            bits = take_raw(data_ptr, at + (e * ITEM).to(tl.int64), size, inside, ITEM)
            value = bits.to(raw_ptr.dtype.element_ty)
            tl.store(raw_ptr + base + first + e, value, mask=inside)
        used = (tl.sum(there) * wide + 7) // 8 + map_size
        at += tl.where(raw, length * ITEM, used).to(tl.int64)
