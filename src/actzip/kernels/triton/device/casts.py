"""Elements in another floating type on the device, rounded to nearest, never to infinity; and
codes as bit planes, for those who have codes."""

import triton
import triton.language as tl

from actzip.kernels.triton.device.numbers import bf16_bits, widen
from actzip.kernels.triton.device.planes import put_bytes, put_words, take_octets


@triton.jit
def convert(source_ptr, target_ptr, n, SIZE: tl.constexpr):
    KIND: tl.constexpr = target_ptr.dtype.element_ty
    first = tl.program_id(0).to(tl.int64) * SIZE
    local = tl.arange(0, SIZE)
    limit = tl.minimum(n - first, SIZE).to(tl.int32)
    if limit == SIZE:
        x = widen(tl.load(source_ptr + first + local))
    else:
        x = widen(tl.load(source_ptr + first + local, mask=local < limit, other=0))
    if KIND == tl.float64:
        y = x.to(tl.float64)
    elif KIND == tl.float32 and x.dtype == tl.float32:
        y = x
    else:
        if KIND == tl.float16:
            top = tl.full([], 65504.0, x.dtype)
        elif KIND == tl.int16:
            top = tl.full([], 3.3895313892515355e38, x.dtype)
        else:
            top = tl.full([], 3.4028234663852886e38, x.dtype)
        finite = tl.abs(x) < float("inf")  # false for NaN too
        x = tl.where(finite, tl.minimum(tl.maximum(x, -top), top), x).to(tl.float32)
        y = bf16_bits(x) if KIND == tl.int16 else x.to(KIND)
    if limit == SIZE:
        tl.store(target_ptr + first + local, y)
    else:
        tl.store(target_ptr + first + local, y, mask=local < limit)


@triton.jit
def pack(codes_ptr, words_ptr, bytes_ptr, n, BITS: tl.constexpr, BLOCKS: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCKS * 32
    limit = tl.minimum(n - first, BLOCKS * 32).to(tl.int32)
    block = tl.arange(0, BLOCKS)
    local = block[:, None] * 32 + tl.arange(0, 32)[None, :]
    codes = tl.load(codes_ptr + first + local, mask=local < limit, other=0).to(tl.uint32)
    count = tl.minimum(tl.maximum(limit - block * 32, 0), 32)
    here = (first >> 5) * BITS
    put_words(words_ptr + here, codes, block, count == 32, BITS, BITS)
    if limit % 32 != 0:
        size = tl.where(count == 32, 0, (count + 7) // 8)
        put_bytes(bytes_ptr + here * 4, codes, block, size, BITS)


@triton.jit
def unpack(bytes_ptr, codes_ptr, n, BITS: tl.constexpr, OCTETS: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * OCTETS * 8
    limit = tl.minimum(n - first, OCTETS * 8).to(tl.int32)
    octet = tl.arange(0, OCTETS)
    local = octet[:, None] * 8 + tl.arange(0, 8)[None, :]
    size = (tl.minimum(tl.maximum(limit - octet // 4 * 32, 0), 32) + 7) // 8
    codes = take_octets(bytes_ptr + (first >> 5) * 4 * BITS, octet, size, BITS, BITS)
    tl.store(codes_ptr + first + local, codes.to(tl.uint8), mask=local < limit)
