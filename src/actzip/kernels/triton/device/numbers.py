"""Numbers on the device: elements in and out, the half-width metadata, the dither hash.

Every operation is rounded on its own, as in reference/: launches turn off fused multiply-add.
bfloat16 travels as its bits, int16, and is rounded by integers: Triton's interpreter truncates
where a GPU rounds.
"""

import triton
import triton.language as tl


@triton.jit
def widen(raw):
    """An element as it lies in memory in the type it is computed in: float32, or float64."""
    if raw.dtype == tl.int16:
        wide = raw.to(tl.uint16, bitcast=True).to(tl.uint32) << 16
        return wide.to(tl.float32, bitcast=True)
    elif raw.dtype == tl.float64:
        return raw
    else:
        return raw.to(tl.float32)


@triton.jit
def bf16_bits(x):
    """float32 to the bits of the nearest bfloat16, ties to even, as int16."""
    u = x.to(tl.uint32, bitcast=True)
    near = (u + 0x7FFF + ((u >> 16) & 1)) >> 16
    return tl.where(x != x, (u >> 16) | 0x40, near).to(tl.uint16).to(tl.int16, bitcast=True)


@triton.jit
def narrow(x, KIND: tl.constexpr):
    """A computed value as an element of memory; float16 never overflows to infinity."""
    if KIND == tl.int16:
        return bf16_bits(x)
    elif KIND == tl.float16:
        return tl.minimum(tl.maximum(x, -65504.0), 65504.0).to(tl.float16)
    else:
        return x


@triton.jit
def bits_of(x):
    """The bits of a float32 or float64, signed."""
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True)
    else:
        return x.to(tl.int32, bitcast=True)


@triton.jit
def from_bits(b):
    if b.dtype == tl.int64:
        return b.to(tl.float64, bitcast=True)
    else:
        return b.to(tl.float32, bitcast=True)


@triton.jit
def low_half(x):
    """The mask of the lower half of a float's bits."""
    if x.dtype == tl.float64:
        return tl.full([], 0xFFFFFFFF, tl.int64)
    else:
        return tl.full([], 0xFFFF, tl.int32)


@triton.jit
def upper_floor(x):
    """The largest value of half the bits that is not above x."""
    bits, low = bits_of(x), low_half(x)
    return from_bits(tl.where(x < 0, bits + low, bits) & ~low)


@triton.jit
def upper_ceil(x):
    """The smallest value of half the bits that is not below x, for x >= 0."""
    low = low_half(x)
    return from_bits((bits_of(x) + low) & ~low)


@triton.jit
def upper_half(x):
    """What is stored of a value whose lower half is zero."""
    if x.dtype == tl.float64:
        return (bits_of(x) >> 32).to(tl.int32)
    else:
        return (bits_of(x) >> 16).to(tl.int16)


@triton.jit
def from_half(h):
    if h.dtype == tl.int32:
        return (h.to(tl.int64) << 32).to(tl.float64, bitcast=True)
    else:
        return (h.to(tl.int32) << 16).to(tl.float32, bitcast=True)


@triton.jit
def divide(a, b):
    """a / b, rounded to nearest: `/` alone is 2 ulp off in float32."""
    if a.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def round_code(t):
    """rint(t) as uint32, for 0 <= t <= 2^16: the sum rounds to even, its low bits are the code."""
    if t.dtype == tl.float64:
        return (t + 6755399441055744.0).to(tl.uint64, bitcast=True).to(tl.uint32) & 0xFFFF
    else:
        return (t + 12582912.0).to(tl.uint32, bitcast=True) & 0xFFFF


@triton.jit
def not_zero(x, KIND: tl.constexpr):
    """x, or where it is nearer to zero, the smallest number of the element type with its sign."""
    one = tl.full([], 1, tl.int64)
    if KIND == tl.float64:
        tiny = one.to(tl.float64, bitcast=True)
    elif KIND == tl.float16:
        tiny = (tl.full([], 103 << 23, tl.int32)).to(tl.float32, bitcast=True)
    elif KIND == tl.int16:
        tiny = (tl.full([], 1 << 16, tl.int32)).to(tl.float32, bitcast=True)
    else:
        tiny = one.to(tl.int32).to(tl.float32, bitcast=True)
    return tl.where(tl.abs(x) < tiny, tl.where(bits_of(x) < 0, -tiny, tiny), x)


@triton.jit
def mix64(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


@triton.jit
def load_seed(seed):
    """The seed as uint64: a number, or a pointer to an int64, so that a captured graph can change
    it."""
    if seed.dtype.is_ptr():
        return tl.load(seed).to(tl.uint64, bitcast=True)
    else:
        return seed.to(tl.int64).to(tl.uint64, bitcast=True)


@triton.jit
def dither(seed, base, local, REAL: tl.constexpr, LONG: tl.constexpr):
    """v of the elements base + local, base (a multiple of 32) in 64 bits, local in 32.

    LONG: elements of 2^33 and more, where the keys change with the upper half of a word's number.
    """
    inner = mix64(seed + 0x9E3779B97F4A7C15)
    first = (base >> 5) << 4
    there = ((local >> 5) << 4) | (local & 15)
    if LONG:
        word64 = first + there.to(tl.int64)
        high = (word64 >> 32).to(tl.uint64)
        key = mix64(inner + high * 0xD1342543DE82EF95)
        word = (word64 & 0xFFFFFFFF).to(tl.uint32)
    else:
        key = mix64(inner)
        word = first.to(tl.uint32) + there.to(tl.uint32)
    x = word * 0x9E3779B9 + key.to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D + (key >> 32).to(tl.uint32)
    x = (x ^ (x >> 15)) * 0x846CA68B
    x = x ^ (x >> 16)
    half = (x >> (local & 16).to(tl.uint32)).to(tl.uint16).to(tl.int16, bitcast=True)
    v = half.to(tl.float32) * 1.52587890625e-05 + 7.62939453125e-06
    return v.to(REAL)
