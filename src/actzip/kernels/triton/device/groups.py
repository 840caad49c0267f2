"""What all group codes do on the device: ranges to metadata, values to codes and back.

The steps and their order are those of reference/metadata.py and reference/group.py.
"""

import triton
import triton.language as tl

from actzip.kernels.triton.device.numbers import (
    divide,
    from_half,
    not_zero,
    round_code,
    upper_ceil,
    upper_floor,
    upper_half,
)

NEAREST = tl.constexpr(0)
DITHER = tl.constexpr(2)


@triton.jit
def largest_of(REAL: tl.constexpr):
    if REAL == tl.float64:
        return tl.full([], 2.0**1020, tl.float64)
    else:
        return tl.full([], 2.0**124, tl.float32)


@triton.jit
def smallest_of(REAL: tl.constexpr):
    if REAL == tl.float64:
        return tl.full([], 2.0**-900, tl.float64)
    else:
        return tl.full([], 2.0**-100, tl.float32)


@triton.jit
def spread(x, seen, AXIS: tl.constexpr):
    """Least and largest of the elements that are seen, and whether one of them is no number to
    code; (inf, -inf) where there are none."""
    calm = tl.abs(x) <= largest_of(x.dtype)
    ok = seen & calm
    lo = tl.min(tl.where(ok, x, float("inf")), axis=AXIS)
    hi = tl.max(tl.where(ok, x, float("-inf")), axis=AXIS)
    return lo, hi, tl.max((seen & ~calm).to(tl.int32), axis=AXIS)


@triton.jit
def metadata(lo, hi, bad, levels):
    """Least value, step and whether the group is raw, of groups with this range."""
    zero = (bad * 0).to(lo.dtype)
    none = lo > hi
    lo = tl.where(none, zero, lo)
    hi = tl.where(none, zero, hi)
    base = upper_floor(lo + 0.0)
    width = hi - base
    raw = (bad != 0) | ((levels > 0) & (width != 0) & (width < smallest_of(lo.dtype)))
    parts = zero + tl.maximum(levels, 1).to(lo.dtype)
    step = upper_ceil(divide(width, parts))
    flat = (levels == 0) | (width == 0) | raw
    middle = upper_floor(lo * 0.5 + hi * 0.5 + 0.0)
    base = tl.where(levels == 0, middle, base)
    return tl.where(raw, zero, base), tl.where(flat, zero, step), raw


@triton.jit
def store_metadata(lo_ptr, step_ptr, at, lo, step, raw, mask):
    stored = upper_half(step)
    tl.store(lo_ptr + at, upper_half(lo), mask=mask)
    tl.store(step_ptr + at, tl.where(raw, -1, stored).to(stored.dtype), mask=mask)


@triton.jit
def load_metadata(lo_ptr, step_ptr, at, mask):
    """Least value, step, raw; a raw group has all bits of its step set and decodes to zeros."""
    lo = tl.load(lo_ptr + at, mask=mask, other=0)
    step = tl.load(step_ptr + at, mask=mask, other=0)
    raw = step == -1
    zero = (lo * 0).to(lo.dtype)
    return from_half(tl.where(raw, zero, lo)), from_half(tl.where(raw, zero, step)), raw


@triton.jit
def inverse(step):
    one = step * 0.0 + 1.0
    return tl.where(step > 0, divide(one, tl.where(step > 0, step, one)), step * 0.0)


@triton.jit
def quantize(x, lo, inv, raw, v, inside, levels, ZERO: tl.constexpr, ROUNDING: tl.constexpr):
    """Codes as uint32; lo, inv and raw broadcast over the elements of their groups."""
    held = tl.where(raw, 0.0, x)
    t = (held - lo) * inv
    if ROUNDING != NEAREST:
        t += v
    t = tl.minimum(tl.maximum(t, 0.0), levels.to(x.dtype))
    codes = round_code(t)
    if ZERO:
        return tl.where(inside & (x != 0), codes + 1, 0)
    else:
        return tl.where(inside, codes, 0)


@triton.jit
def dequantize(codes, lo, step, v, KIND: tl.constexpr, ZERO: tl.constexpr, ROUNDING: tl.constexpr):
    """Values in the computing type; KIND is the element type of memory."""
    q = codes.to(tl.int32).to(lo.dtype)
    if ZERO:
        q -= 1.0
    if ROUNDING == DITHER:
        q -= v
    x = lo + q * step
    if ZERO:
        x = tl.where(codes > 0, not_zero(x, KIND), 0.0)
    return x
