"""Chunks of 4096 values whose codes start at any bit, on the device: for codes that take as many
bytes as they need (fixedpoint.py, bounded.py)."""

import triton
import triton.language as tl

from actzip.kernels.triton.device.numbers import bf16_bits, widen


@triton.jit
def chunk_blocks(n):
    """This program's chunk: its number, its first element, its 64 blocks, their elements in it
    (64 x 64), how many elements there are, and which."""
    return blocks_of(tl.program_id(0), n)


@triton.jit
def blocks_of(chunk, n):
    """The same of any chunk."""
    base = chunk.to(tl.int64) * 4096
    block = tl.arange(0, 64)
    local = block[:, None] * 64 + tl.arange(0, 64)[None, :]
    limit = tl.minimum(n - base, 4096).to(tl.int32)
    return chunk, base, block, local, limit, local < limit


@triton.jit
def channel_of(base, local, inner, channels, LARGE: tl.constexpr):
    i = base + local.to(tl.int64) if LARGE else base.to(tl.int32) + local
    return (i // inner % channels).to(tl.int32)


@triton.jit
def as_stored(x, KIND: tl.constexpr):
    """A computed value after a trip through the element type, infinite where that overflows."""
    if KIND == tl.int16:
        return widen(bf16_bits(x))
    elif KIND == tl.float16:
        return x.to(tl.float16).to(tl.float32)
    else:
        return x


@triton.jit
def raw_bits(stored):
    """An element's bits as an unsigned number."""
    if stored.dtype.primitive_bitwidth == 64:
        return stored.to(tl.uint64, bitcast=True)
    elif stored.dtype.primitive_bitwidth == 32:
        return stored.to(tl.uint32, bitcast=True)
    else:
        return stored.to(tl.uint16, bitcast=True).to(tl.uint32)


@triton.jit
def merge(words_ptr, place, value, mask):
    """The bits of `value` (uint32) at bit `place` (int32) of words that are zero there."""
    shift = (place & 31).to(tl.uint32)
    low = (value << shift).to(tl.int32, bitcast=True)
    tl.atomic_or(words_ptr + (place >> 5), low, mask=mask & (low != 0))
    high = ((value >> 1) >> (31 - shift)).to(tl.int32, bitcast=True)
    tl.atomic_or(words_ptr + (place >> 5) + 1, high, mask=mask & (high != 0))


@triton.jit
def take(bytes_ptr, place, size, mask, OCTETS: tl.constexpr, KIND: tl.constexpr):
    """8 * OCTETS - 7 bits and more from bit `place` on, as KIND; zeros outside of `size` bytes."""
    at = place >> 3
    value = (place * 0).to(KIND)
    for k in tl.static_range(OCTETS):
        there = mask & (at + k >= 0) & (at + k < size)
        octet = tl.load(bytes_ptr + at + k, mask=there, other=0).to(KIND)
        value |= octet << (8 * k)
    return value >> (place & 7).to(KIND)


@triton.jit
def take_raw(bytes_ptr, byte, size, mask, ITEM: tl.constexpr):
    """Elements of ITEM bytes that begin at these bytes, as integers; zeros outside of `size`."""
    bits = (byte * 0).to(tl.int64)
    for k in tl.static_range(ITEM):
        there = mask & (byte + k >= 0) & (byte + k < size)
        octet = tl.load(bytes_ptr + byte + k, mask=there, other=0)
        bits |= octet.to(tl.int64) << (8 * k)
    return bits
