"""Per-channel fixed point on the device (reference/fixedpoint.py).

A program takes a chunk of 4096 values in blocks of 64. Sizes depend on the values, so encoding is
three launches: the largest values, the sizes of chunks, the bytes. Codes have any width and start
at any bit: they are merged into words of zeros, of which neighbours may write parts.
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
from actzip.kernels.triton.device.groups import DITHER, NEAREST
from actzip.kernels.triton.device.numbers import bf16_bits, bits_of, dither, load_seed, widen


@triton.jit
def largest(x_ptr, found_ptr, outer, channels, inner, slices, CT: tl.constexpr, IT: tl.constexpr):
    """The bits of the largest finite magnitude of each channel, into zeros; x is outer x channels x
    inner, a program takes CT channels of every `slices`-th outer."""
    tile = tl.program_id(0) // slices
    c = tile * CT + tl.arange(0, CT)
    i = tl.arange(0, IT)[None, :]
    REAL: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    most = tl.zeros([CT], REAL)
    first = (tl.program_id(0) % slices).to(tl.int64)
    for o in range(0, outer - (tl.program_id(0) % slices), slices):
        row = x_ptr + (first + o) * channels * inner
        for i0 in range(0, inner, IT):
            there = (c < channels)[:, None] & (i0 + i < inner)
            x = tl.abs(widen(tl.load(row + c[:, None] * inner + i0 + i, mask=there, other=0)))
            most = tl.maximum(most, tl.max(tl.where(x < float("inf"), x, 0.0), axis=1))
    tl.atomic_max(found_ptr + c, bits_of(most), mask=c < channels)


@triton.jit(do_not_specialize=["seed"])
def encode_chunks(
    x_ptr, steps_ptr, inverse_ptr, limits_ptr, bits_ptr, sizes_ptr, words_ptr, seed, n, inner,
    channels, start,
    SKIP: tl.constexpr, ROUNDING: tl.constexpr, WRITE: tl.constexpr, LARGE: tl.constexpr,
    LONG: tl.constexpr,
):  # fmt: skip
    """The size of a chunk into sizes_ptr; or with WRITE its bytes, sizes_ptr saying how many bytes
    behind `start` it begins."""
    KIND: tl.constexpr = x_ptr.dtype.element_ty
    ITEM: tl.constexpr = KIND.primitive_bitwidth // 8
    chunk, base, b, local, limit, inside = chunk_blocks(n)
    e = tl.arange(0, 64)
    stored = tl.load(x_ptr + base + local, mask=inside, other=0)
    x = widen(stored)
    channel = channel_of(base, local, inner, channels, LARGE)
    step = tl.load(steps_ptr + channel)
    width = tl.load(bits_ptr + channel).to(tl.int32)
    top = ((1 << (width - 1)) - 1).to(x.dtype)
    t = x * tl.load(inverse_ptr + channel)
    v = x * 0.0 if ROUNDING == NEAREST else dither(load_seed(seed), base, local, x.dtype, LONG)
    if ROUNDING != NEAREST:
        t += v
    t = tl.where(t < top, t, top)
    t = tl.where(t > -top, t, -top)
    magic = 6755399441055744.0 if x.dtype == tl.float64 else 12582912.0
    q = (t + magic) - magic
    back = (q - v if ROUNDING == DITHER else q) * step
    good = tl.abs(x - as_stored(back, KIND)) <= tl.load(limits_ptr + channel)
    code = tl.where(good, (q + top + 1).to(tl.int32), 0)
    present = inside & (x != 0) if SKIP else inside
    taken = tl.where(present, width, 0)
    ends = tl.cumsum(taken, axis=1)
    count = tl.minimum(tl.maximum(limit - b * 64, 0), 64)
    map_size = (count + 7) // 8 if SKIP else count * 0
    size = (tl.sum(taken, axis=1) + 7) // 8 + map_size
    block_end = tl.cumsum(size, axis=0)
    kept = present & (code == 0)
    if WRITE:
        byte = start + tl.load(sizes_ptr + chunk)
        words_ptr += byte >> 2
        begin = (byte & 3).to(tl.int32) * 8
        block = begin + (block_end - size) * 8
        place = (block + map_size * 8)[:, None] + (ends - taken)
        merge(words_ptr, place, code.to(tl.uint32), present)
        if SKIP:
            one = tl.full([64, 64], 1, tl.uint32)
            merge(words_ptr, block[:, None] + e[None, :], one, present)
        lost = tl.sum(kept.to(tl.int32), axis=1)
        if tl.sum(lost) > 0:
            before = (tl.cumsum(lost, axis=0) - lost)[:, None]
            before += tl.cumsum(kept.to(tl.int32), axis=1) - kept.to(tl.int32)
            place = begin + (tl.sum(size) + before * ITEM) * 8
            raw = raw_bits(stored)
            for k in tl.static_range(ITEM):
                octet = ((raw >> (8 * k)) & 255).to(tl.uint32)
                merge(words_ptr, place + 8 * k, octet, kept)
    else:
        total = tl.sum(size) + tl.sum(tl.sum(kept.to(tl.int32), axis=1)) * ITEM
        tl.store(sizes_ptr + chunk, total.to(tl.int64))


@triton.jit
def block_codes(
    data_ptr, at, base, first, limit, bits_ptr, inner, channels, size,
    SKIP: tl.constexpr, LARGE: tl.constexpr,
):  # fmt: skip
    """The codes of the block whose bytes begin at `at`, which are there, their widths, where their
    channel is, and where the next block begins."""
    e = tl.arange(0, 64)
    count = tl.minimum(limit - first, 64)
    present = e < count
    here = at
    if SKIP:
        found = take(data_ptr, at * 8 + e.to(tl.int64), size, present, 3, tl.uint32) & 1
        present = present & (found != 0)
        here += ((count + 7) // 8).to(tl.int64)
    channel = channel_of(base, first + e, inner, channels, LARGE)
    width = tl.load(bits_ptr + channel).to(tl.int32)
    taken = tl.where(present, width, 0)
    place = here * 8 + (tl.cumsum(taken, axis=0) - taken).to(tl.int64)
    code = take(data_ptr, place, size, present, 3, tl.uint32) & ((1 << width) - 1).to(tl.uint32)
    code = tl.where(present, code, 0)
    return code, present, width, channel, here + ((tl.sum(taken) + 7) // 8).to(tl.int64)


@triton.jit(do_not_specialize=["seed"])
def decode_chunks(
    data_ptr, steps_ptr, bits_ptr, offsets_ptr, out_ptr, raw_ptr, seed, n, inner, channels, size,
    SKIP: tl.constexpr, ROUNDING: tl.constexpr, LARGE: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """A chunk a program, block after block: where one begins is known when the last is read.
    `size` bytes are there; raw_ptr is out_ptr as integers."""
    KIND: tl.constexpr = out_ptr.dtype.element_ty
    ITEM: tl.constexpr = KIND.primitive_bitwidth // 8
    chunk = tl.program_id(0)
    base = chunk.to(tl.int64) * 4096
    limit = tl.minimum(n - base, 4096).to(tl.int32)
    e = tl.arange(0, 64)
    begin = tl.load(offsets_ptr + chunk)
    at = begin
    lost = 0
    for first in range(0, limit, 64):
        code, present, width, channel, at = block_codes(
            data_ptr, at, base, first, limit, bits_ptr, inner, channels, size, SKIP, LARGE
        )
        step = tl.load(steps_ptr + channel)
        top = ((1 << (width - 1)) - 1).to(step.dtype)
        q = (code.to(tl.int32).to(step.dtype) - top) - 1
        if ROUNDING == DITHER:
            q -= dither(load_seed(seed), base, first + e, step.dtype, LONG)
        x = tl.where(present, q * step, 0.0)
        y = bf16_bits(x) if KIND == tl.int16 else x.to(KIND)
        tl.store(out_ptr + base + first + e, y, mask=first + e < limit)
        lost += tl.sum((present & (code == 0)).to(tl.int32))
    if lost > 0:
        behind = at
        at = begin
        for first in range(0, limit, 64):
            code, present, _, _, at = block_codes(
                data_ptr, at, base, first, limit, bits_ptr, inner, channels, size, SKIP, LARGE
            )
            kept = present & (code == 0)
            order = tl.cumsum(kept.to(tl.int32), axis=0) - kept.to(tl.int32)
            raw = take_raw(data_ptr, behind + (order * ITEM).to(tl.int64), size, kept, ITEM)
            value = raw.to(raw_ptr.dtype.element_ty)
            tl.store(raw_ptr + base + first + e, value, mask=kept)
            behind += (tl.sum(kept.to(tl.int32)) * ITEM).to(tl.int64)
