"""Bit planes on the device: blocks of 32 codes to words and back (reference/planes.py).

A tile is (blocks, 32) codes. Whole blocks that start at a multiple of four bytes go as words, the
rest byte by byte: the last block of a row, and rows that start elsewhere.
"""

import triton
import triton.language as tl


@triton.jit
def plane(codes, j):
    """Bit j of each code, a word per block."""
    lane = tl.arange(0, 32).to(tl.uint32)[None, :]
    return tl.sum(((codes >> j) & 1) << lane, axis=1)


@triton.jit
def put_words(words_ptr, codes, block, whole, bits, BITS: tl.constexpr):
    """Whole blocks, numbered `block`, from words_ptr on; BITS is 0 when bits differ by row."""
    if (BITS & (BITS - 1)) == 0 and BITS > 0:
        j = tl.arange(0, BITS).to(tl.uint32)
        lane = tl.arange(0, 32).to(tl.uint32)
        ones = (codes[:, None, :] >> j[None, :, None]) & 1
        words = tl.sum(ones << lane[None, None, :], axis=2)
        at = block[:, None] * BITS + tl.arange(0, BITS)[None, :]
        tl.store(words_ptr + at, words.to(tl.int32, bitcast=True), mask=whole[:, None])
    else:
        for j in range(bits):
            word = plane(codes, j).to(tl.int32, bitcast=True)
            tl.store(words_ptr + block * bits + j, word, mask=whole)


@triton.jit
def put_bytes(bytes_ptr, codes, block, size, bits):
    """Blocks whose planes take `size` bytes each (0: not stored), from bytes_ptr on."""
    k = tl.arange(0, 4)[None, :]
    for j in range(bits):
        word = plane(codes, j)[:, None]
        octets = ((word >> (8 * k).to(tl.uint32)) & 255).to(tl.uint8)
        at = (block * 4 * bits + j * size)[:, None] + k
        tl.store(bytes_ptr + at, octets, mask=k < size[:, None])


@triton.jit
def take_octets(bytes_ptr, octet, size, bits, BITS: tl.constexpr):
    """The codes of eights of elements, numbered from bytes_ptr on, whose blocks have planes of
    `size` bytes (0: none): a byte holds a bit of eight codes, which a thread writes together."""
    lane = tl.arange(0, 8).to(tl.uint32)[None, :]
    codes = (octet[:, None] * 0 + tl.arange(0, 8)[None, :] * 0).to(tl.uint32)
    there = octet % 4 < size
    if BITS > 0:
        for j in tl.static_range(BITS):
            at = octet // 4 * 4 * BITS + j * size + octet % 4
            octets = tl.load(bytes_ptr + at, mask=there, other=0).to(tl.uint32)
            codes |= ((octets[:, None] >> lane) & 1) << j
    else:
        for j in range(bits):
            at = octet // 4 * 4 * bits + j * size + octet % 4
            octets = tl.load(bytes_ptr + at, mask=there, other=0).to(tl.uint32)
            codes |= ((octets[:, None] >> lane) & 1) << j
    return codes
