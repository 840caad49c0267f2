"""Integers in a stream of few bits on the device (reference/index.py): 32 of them fill as many
words as an element has bits."""

import triton
import triton.language as tl


@triton.jit
def extremes(x_ptr, both_ptr, n, SIZE: tl.constexpr):
    """Least and largest value into both_ptr, which holds the largest and the least int64."""
    first = tl.program_id(0).to(tl.int64) * SIZE
    local = tl.arange(0, SIZE)
    inside = local < n - first
    x = tl.load(x_ptr + first + local, mask=inside, other=0).to(tl.int64)
    tl.atomic_min(both_ptr, tl.min(tl.where(inside, x, 0x7FFFFFFFFFFFFFFF)))
    tl.atomic_max(both_ptr + 1, tl.max(tl.where(inside, x, -0x8000000000000000)))


@triton.jit
def shifted(v, by):
    """v moved up by `by` bits, down where it is negative, nothing where that is all of them."""
    width: tl.constexpr = v.dtype.primitive_bitwidth
    up = tl.minimum(tl.maximum(by, 0), width - 1).to(v.dtype)
    down = tl.minimum(tl.maximum(-by, 0), width - 1).to(v.dtype)
    return tl.where((by < width) & (by > -width), (v << up) >> down, 0)


@triton.jit(do_not_specialize=["lo", "bits"])
def encode_index(x_ptr, data_ptr, lo, bits, n, ROWS: tl.constexpr, WORD: tl.constexpr):
    """ROWS times 32 elements a program; WORD: uint32, or uint64 for more than 32 bits."""
    first = tl.program_id(0).to(tl.int64) * ROWS * 32
    e = tl.arange(0, 32)[None, :]
    row = tl.arange(0, ROWS)
    local = row[:, None] * 32 + e
    inside = local < n - first
    x = tl.load(x_ptr + first + local, mask=inside, other=0).to(tl.int64) - lo.to(tl.int64)
    v = tl.where(inside, x, 0).to(tl.uint64, bitcast=True).to(WORD)
    target = data_ptr + (first // 8) * bits
    end = (tl.minimum(n - first, ROWS * 32) * bits + 7) // 8
    k = tl.arange(0, 4)[None, :]
    for j in range(bits):
        # disjoint bits: the sum of the parts is their union
        word = tl.sum(shifted(v, e * bits - 32 * j).to(tl.uint32), axis=1)
        octets = ((word[:, None] >> (8 * k).to(tl.uint32)) & 255).to(tl.uint8)
        at = (row * 4 * bits + 4 * j)[:, None] + k
        tl.store(target + at, octets, mask=at < end)


@triton.jit(do_not_specialize=["lo", "bits"])
def decode_index(data_ptr, out_ptr, lo, bits, n, SIZE: tl.constexpr, WORD: tl.constexpr):
    """SIZE elements a program, a multiple of 8."""
    first = tl.program_id(0).to(tl.int64) * SIZE
    local = tl.arange(0, SIZE)
    inside = local < n - first
    source = data_ptr + (first // 8) * bits
    end = (tl.minimum(n - first, SIZE) * bits + 7) // 8
    place = local * bits
    v = (local * 0).to(WORD)
    for k in range((bits + 14) // 8):
        at = place // 8 + k
        octets = tl.load(source + at, mask=inside & (at < end), other=0).to(WORD)
        v |= shifted(octets, 8 * k - place % 8)
    one = tl.full([], 1, tl.uint64)
    keep = ((one << (bits % 64).to(tl.uint64)) - 1).to(WORD)
    v = tl.where(bits < v.dtype.primitive_bitwidth, v & keep, v)
    x = v.to(tl.uint64).to(tl.int64, bitcast=True) + lo.to(tl.int64)
    tl.store(out_ptr + first + local, x.to(out_ptr.dtype.element_ty), mask=inside)
