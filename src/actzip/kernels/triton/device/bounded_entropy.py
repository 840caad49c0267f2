"""Error-bounded codes for the entropy stage on the device (reference/bounded_entropy.py): a chunk
of 4096 values a program.

`count_chunks` finds what the table is made from, `code_chunks` the symbols and the bits beside
them, `write_chunks` these bits and the values of raw blocks, `read_chunks` all values.
"""

import triton
import triton.language as tl

from actzip.kernels.triton.device.bounded import (
    add_up_in_maps,
    bit_width,
    residuals,
    scale_of,
    zigzag,
)
from actzip.kernels.triton.device.chunks import channel_of, merge, raw_bits, take, take_raw
from actzip.kernels.triton.device.numbers import bf16_bits, dither, load_seed

UNSIGNED = tl.constexpr(0)
DIFFERENCES = tl.constexpr(2)


@triton.jit
def symbol_of(code):
    """64 direct symbols, then eight per octave; codes of 32 bits, those of 31 and more escape."""
    exponent = bit_width(code) - 1
    octave = 64 + (exponent - 6) * 8 + ((code >> tl.maximum(exponent - 3, 0)) & 7)
    found = tl.where(code < 64, code, tl.where(exponent > 29, 255, octave))
    return tl.where(code < 0, 255, found)


@triton.jit
def extra_bits(symbol):
    found = tl.where(symbol < 64, 0, (symbol - 64) // 8 + 3)
    return tl.where(symbol == 255, 32, found)


@triton.jit
def codes_of(symbols_ptr, base, local, width, height, WHAT: tl.constexpr, WIDTH: tl.constexpr):
    s = tl.load(symbols_ptr + base + local)
    if WHAT == DIFFERENCES:
        return zigzag(residuals(s, symbols_ptr, base, local, width, height, WIDTH))
    elif WHAT == UNSIGNED:
        return s
    else:
        return zigzag(s)


@triton.jit
def count_chunks(
    symbols_ptr, sizes_ptr, looked_ptr, counts_ptr, n, width, height, WIDTH: tl.constexpr
):
    """Adds up over the chunks that looked_ptr names: symbols of signed codes, of unsigned ones, of
    differences (256 each), how many are negative, and bytes when packed."""
    chunk = tl.load(looked_ptr + tl.program_id(0))
    base = chunk * 4096
    local = tl.arange(0, 4096)
    inside = local < n - base
    s = tl.load(symbols_ptr + base + local)
    at = counts_ptr + tl.arange(0, 256)
    found = tl.histogram(symbol_of(zigzag(s)), 256, mask=inside)
    tl.atomic_add(at, found.to(tl.int64), mask=found > 0)
    found = tl.histogram(symbol_of(s), 256, mask=inside & (s >= 0))
    tl.atomic_add(at + 256, found.to(tl.int64), mask=found > 0)
    steps = zigzag(residuals(s, symbols_ptr, base, local, width, height, WIDTH))
    found = tl.histogram(symbol_of(steps), 256, mask=inside)
    tl.atomic_add(at + 512, found.to(tl.int64), mask=found > 0)
    tl.atomic_add(counts_ptr + 768, tl.sum((inside & (s < 0)).to(tl.int32)).to(tl.int64))
    tl.atomic_add(counts_ptr + 769, tl.load(sizes_ptr + chunk))


@triton.jit
def code_chunks(
    symbols_ptr, frequency_ptr, codes_ptr, bits_ptr, n, width, height,
    WHAT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Symbols that the table has (uint8), and the extra bits of each chunk."""
    chunk = tl.program_id(0).to(tl.int64)
    base = chunk * 4096
    local = tl.arange(0, 4096)
    inside = local < n - base
    symbol = symbol_of(codes_of(symbols_ptr, base, local, width, height, WHAT, WIDTH))
    symbol = tl.where(tl.load(frequency_ptr + symbol) == 0, 255, symbol)
    tl.store(codes_ptr + base + local, symbol.to(tl.uint8), mask=inside)
    bits = tl.where(inside, extra_bits(symbol), 0)
    tl.store(bits_ptr + chunk, tl.sum(bits).to(tl.int64))


@triton.jit
def measure_chunks(codes_ptr, bits_ptr, n):
    """The extra bits of each chunk, from its symbols."""
    chunk = tl.program_id(0).to(tl.int64)
    local = tl.arange(0, 4096)
    inside = local < n - chunk * 4096
    symbol = tl.load(codes_ptr + chunk * 4096 + local, mask=inside, other=0).to(tl.int32)
    tl.store(bits_ptr + chunk, tl.sum(extra_bits(symbol)).to(tl.int64))


@triton.jit
def write_chunks(
    x_ptr, symbols_ptr, codes_ptr, raw_ptr, places_ptr, kept_ptr, words_ptr, n, width, height,
    WHAT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Into words of zeros: extra bits from bit places_ptr[chunk] on, the values of raw blocks from
    byte kept_ptr[block] on."""
    KIND: tl.constexpr = x_ptr.dtype.element_ty
    ITEM: tl.constexpr = KIND.primitive_bitwidth // 8
    chunk = tl.program_id(0).to(tl.int64)
    base = chunk * 4096
    local = tl.arange(0, 4096)
    inside = local < n - base
    code = codes_of(symbols_ptr, base, local, width, height, WHAT, WIDTH)
    symbol = tl.load(codes_ptr + base + local, mask=inside, other=0).to(tl.int32)
    bits = extra_bits(symbol)
    start = tl.load(places_ptr + chunk)
    place = (start & 31).to(tl.int32) + tl.cumsum(bits, axis=0) - bits
    low = code & ((1 << tl.minimum(bits, 30)) - 1)
    value = tl.where(symbol == 255, code, low).to(tl.uint32, bitcast=True)
    merge(words_ptr + (start >> 5), place, value, inside & (bits > 0))
    block = chunk * 64 + local // 64
    raw = tl.load(raw_ptr + block, mask=inside, other=0) != 0
    if tl.max(raw.to(tl.int32)) > 0:
        stored = raw_bits(tl.load(x_ptr + base + local, mask=raw, other=0))
        byte = tl.load(kept_ptr + block, mask=raw, other=0)
        here = (byte & 3).to(tl.int32) * 8 + local % 64 * (8 * ITEM)
        for k in tl.static_range(ITEM):
            octet = ((stored >> (8 * k)) & 255).to(tl.uint32)
            merge(words_ptr + (byte >> 2), here + 8 * k, octet, raw)


@triton.jit(do_not_specialize=["seed"])
def read_chunks(
    data_ptr, codes_ptr, levels_ptr, raw_ptr, places_ptr, kept_ptr, bounds_ptr, symbols_ptr,
    out_ptr, bits_ptr, seed, n, inner, channels, size, width, height,
    WHAT: tl.constexpr, DITHERED: tl.constexpr, WIDTH: tl.constexpr, LARGE: tl.constexpr,
    LONG: tl.constexpr,
):  # fmt: skip
    """Values from symbols and extra bits. bits_ptr: the output as integers; symbols_ptr: room for
    whole chunks (int32) where differences are those of maps."""
    KIND: tl.constexpr = out_ptr.dtype.element_ty
    ITEM: tl.constexpr = KIND.primitive_bitwidth // 8
    chunk = tl.program_id(0).to(tl.int64)
    base = chunk * 4096
    local = tl.arange(0, 4096)
    inside = local < n - base
    symbol = tl.load(codes_ptr + base + local, mask=inside, other=0).to(tl.int32)
    bits = extra_bits(symbol)
    place = tl.load(places_ptr + chunk) + (tl.cumsum(bits, axis=0) - bits).to(tl.int64)
    held = take(data_ptr, place, size, inside & (bits > 0), 5, tl.uint64)
    held = (held & ((tl.full([], 1, tl.uint64) << bits.to(tl.uint64)) - 1)).to(tl.uint32)
    octave = tl.maximum(symbol - 64, 0)
    least = (8 + octave % 8) << (octave // 8 + 3)
    least = tl.where(symbol < 64, symbol, tl.where(symbol == 255, 0, least))
    code = least.to(tl.uint32) + held
    if WHAT == UNSIGNED:
        s = code.to(tl.int32, bitcast=True)
    else:
        half = (code >> 1).to(tl.int32, bitcast=True)
        s = tl.where((code & 1) == 1, -half - 1, half)
    s = tl.where(inside, s, 0)
    if WHAT == DIFFERENCES:
        if WIDTH:
            here = symbols_ptr + base
            tl.store(here + local, s)
            tl.debug_barrier()
            last = tl.full([], 0, tl.int32)
            for first in range(0, tl.minimum(n - base, 4096).to(tl.int32), 64):
                left = tl.load(here + first + tl.arange(0, 64))
                _, last = add_up_in_maps(left, last, True, here, base, first, width, height, LARGE)
            s = tl.load(here + local)
        else:
            s = tl.cumsum(s, axis=0)
    bound = tl.load(bounds_ptr + channel_of(base, local, inner, channels, LARGE))
    level = tl.load(levels_ptr + chunk).to(tl.int32)
    step = (bound * 2) * scale_of(level).to(bound.dtype)
    q = (tl.where(s > 0, s - 1, s) if DITHERED else s).to(bound.dtype)
    if DITHERED:
        q -= dither(load_seed(seed), base, local, bound.dtype, LONG)
    x = tl.where(s == 0, 0.0, q * step)
    y = bf16_bits(x) if KIND == tl.int16 else x.to(KIND)
    block = chunk * 64 + local // 64
    raw = tl.load(raw_ptr + block, mask=inside, other=0) != 0
    tl.store(out_ptr + base + local, y, mask=inside & ~raw)
    if tl.max(raw.to(tl.int32)) > 0:
        byte = tl.load(kept_ptr + block, mask=raw, other=0) + (local % 64 * ITEM).to(tl.int64)
        value = take_raw(data_ptr, byte, size, raw, ITEM)
        tl.store(bits_ptr + base + local, value.to(bits_ptr.dtype.element_ty), mask=raw)
