"""The results of norms on the device (reference/norm.py): one pass over elements as they lie."""

import triton
import triton.language as tl

from actzip.kernels.triton.device.chunks import channel_of
from actzip.kernels.triton.device.numbers import bf16_bits, widen


@triton.jit
def load_tile(x_ptr, first, local, limit, SIZE: tl.constexpr):
    if limit == SIZE:
        x = widen(tl.load(x_ptr + first + local))
    else:
        x = widen(tl.load(x_ptr + first + local, mask=local < limit, other=0))
    return x


@triton.jit
def store_tile(out_ptr, first, local, limit, y, SIZE: tl.constexpr):
    """Rounded to nearest; what float16 cannot hold becomes infinite, as in PyTorch."""
    KIND: tl.constexpr = out_ptr.dtype.element_ty
    y = bf16_bits(y) if KIND == tl.int16 else y.to(KIND)
    if limit == SIZE:
        tl.store(out_ptr + first + local, y)
    else:
        tl.store(out_ptr + first + local, y, mask=local < limit)


@triton.jit
def least_normal(KIND: tl.constexpr):
    """The smallest normal number of the element type."""
    if KIND == tl.float64:
        return tl.full([], 2.2250738585072014e-308, tl.float64)
    elif KIND == tl.float16:
        return tl.full([], 6.103515625e-05, tl.float32)
    else:
        return tl.full([], 1.1754943508222875e-38, tl.float32)


@triton.jit
def apply_channels(
    x_ptr, out_ptr, scale_ptr, shift_ptr, origin_ptr, flip_ptr, n, inner, channels,
    RELU: tl.constexpr, LARGE: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """x * scale + shift; with RELU zero on one side of the origin, positive on the other."""
    first = tl.program_id(0).to(tl.int64) * SIZE
    local = tl.arange(0, SIZE)
    limit = tl.minimum(n - first, SIZE).to(tl.int32)
    x = load_tile(x_ptr, first, local, limit, SIZE)
    c = channel_of(first, local, inner, channels, LARGE)
    y = x * tl.load(scale_ptr + c) + tl.load(shift_ptr + c)
    if RELU:
        least = least_normal(out_ptr.dtype.element_ty)
        off = (x <= tl.load(origin_ptr + c)) ^ (tl.load(flip_ptr + c) != 0)
        y = tl.where(off, 0.0, tl.where(y < least, least, y))  # a comparison keeps NaN
    store_tile(out_ptr, first, local, limit, y, SIZE)


@triton.jit
def apply_rows(
    x_ptr, out_ptr, mean_ptr, rstd_ptr, weight_ptr, bias_ptr, n, columns,
    MEAN: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, LARGE: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """(x - mean) * rstd * weight + bias; rows of so many columns."""
    first = tl.program_id(0).to(tl.int64) * SIZE
    local = tl.arange(0, SIZE)
    limit = tl.minimum(n - first, SIZE).to(tl.int32)
    y = load_tile(x_ptr, first, local, limit, SIZE)
    i = first + local.to(tl.int64) if LARGE else first.to(tl.int32) + local
    inside = local < limit
    row = i // columns
    column = i - row * columns
    if MEAN:
        y -= tl.load(mean_ptr + row, mask=inside, other=0)
    y *= tl.load(rstd_ptr + row, mask=inside, other=0)
    if WEIGHT:
        y *= tl.load(weight_ptr + column)
    if BIAS:
        y += tl.load(bias_ptr + column)
    store_tile(out_ptr, first, local, limit, y, SIZE)
