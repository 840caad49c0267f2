"""Dithered codes on the device (reference/dithered_grid.py, dithered.py): values to codes, codes to
the symbols of their contexts, and back. The symbols' bytes: dithered_chains.py.

A span's symbols lie context by context, each from a whole row of 32 on, in room of its own. An
element's place there is the number of its symbol times eight, plus which code of the symbol it is.
"""

import triton
import triton.language as tl

from actzip.kernels.triton.device.bounded import bit_width, level_of, scale_of
from actzip.kernels.triton.device.chunks import (
    as_stored,
    blocks_of,
    channel_of,
    chunk_blocks,
    merge,
    raw_bits,
    take_raw,
)
from actzip.kernels.triton.device.numbers import bf16_bits, dither, divide, load_seed, widen

SPAN = tl.constexpr(65536)
ROOM = tl.constexpr(66048)  #: symbols of a span: 16 contexts may have a row that is not full
ESCAPE = tl.constexpr(255)
MOST_EXTRA = tl.constexpr(1024)  #: bits of a block, with given tables
INFO = tl.constexpr(10)  #: numbers of a context: group, base, and the base's eight powers


@triton.jit
def pick(each, k):
    """The element k of 16."""
    return tl.sum(tl.where(tl.arange(0, 16) == k, each, 0))


@triton.jit
def rows_of(counts, info_ptr):
    """Of contexts with so many elements (16): symbols, rows, and the number of the first symbol."""
    group = tl.load(info_ptr + tl.arange(0, 16) * INFO)
    symbols = (counts + group - 1) // group
    rows = (symbols + 31) // 32
    return symbols, rows, (tl.cumsum(rows, axis=0) - rows) * 32


@triton.jit
def bin_of(v):
    return ((v + 0.5) * 256).to(tl.int32)


@triton.jit
def decoded(r, v, step, above, origin, least, KIND: tl.constexpr, SIDES: tl.constexpr):
    """What a code with this r decodes to, rounded to the stored type."""
    found = (r - v) * step
    if SIDES:
        found = tl.where(above, origin + found, origin - found)
        found = as_stored(found, KIND)
        up = tl.where(found > least, found, least)
        return tl.where(above, up, tl.where(found < origin, found, origin))
    else:
        return as_stored(found, KIND)


@triton.jit
def quantize_chunk(
    number, x_ptr, grid_ptr, codes_ptr, raw_ptr, levels_ptr, seed, n, inner, channels,
    ROUNDOFF: tl.constexpr, CAP: tl.constexpr, SIDES: tl.constexpr, GIVEN: tl.constexpr,
    LARGE: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """Codes (int32) of a chunk, which of its blocks are raw, its level. GIVEN: blocks with too many
    extra bits are raw, too."""
    KIND: tl.constexpr = x_ptr.dtype.element_ty
    chunk, base, b, local, limit, inside = blocks_of(number, n)
    x = widen(tl.load(x_ptr + base + local, mask=inside, other=0))
    channel = channel_of(base, local, inner, channels, LARGE)
    bound = tl.load(grid_ptr + channel)
    distance, above, origin, least = x, inside, bound, bound
    if SIDES:
        origin = tl.load(grid_ptr + 2 * channels + channel)
        least = tl.load(grid_ptr + 3 * channels + channel)
        above = x > origin
        distance = tl.where(above, x - origin, origin - x)
        bound = tl.where(above, bound, tl.load(grid_ptr + channels + channel))
    one = bound * 0.0 + 1.0
    ratio = tl.abs(distance * divide(one, (bound * 2) * scale_of(b[:, None] * 0).to(x.dtype)))
    ratio = tl.where(inside & (ratio < float("inf")), ratio, 0.0)
    level = level_of(tl.max(tl.max(ratio, axis=1), axis=0), ROUNDOFF)
    step = (bound * 2) * scale_of(level).to(x.dtype)
    t = distance * divide(one, step)
    v = dither(load_seed(seed), base, local, x.dtype, LONG)
    magic = 6755399441055744.0 if x.dtype == tl.float64 else 12582912.0
    r = ((t + v) + magic) - magic
    back = decoded(r, v, step, above, origin, least, KIND, SIDES)
    good = ((tl.abs(x - back) <= bound) & (tl.abs(t) < CAP)) | (local >= limit)
    raw = tl.max((~good).to(tl.int32), axis=1) > 0
    lost = raw[:, None] | (local >= limit)
    whole = tl.where(lost, 0.0, r).to(tl.int32)
    if SIDES:
        code = 2 * tl.maximum(whole, 0) + (~above).to(tl.int32)
    else:
        folded = tl.where(v < 0, -whole, whole)
        code = tl.where(folded > 0, 2 * folded - 1, -2 * folded)
    code = tl.where(lost, 0, code)
    if GIVEN:
        extra = tl.where(inside, 2 * bit_width(code + 1) - 1, 0)
        raw = raw | (tl.sum(extra, axis=1) > MOST_EXTRA)
        code = tl.where(raw[:, None], 0, code)
    tl.store(codes_ptr + base + local, code, mask=inside)
    tl.store(raw_ptr + chunk.to(tl.int64) * 64 + b, raw.to(tl.uint8), mask=b * 64 < limit)
    tl.store(levels_ptr + chunk, level.to(levels_ptr.dtype.element_ty))
    return code, v, raw, level


@triton.jit(do_not_specialize=["seed"])
def quantize_chunks(
    x_ptr, grid_ptr, codes_ptr, raw_ptr, levels_ptr, looked_ptr, counts_ptr, seed, n, inner,
    channels,
    ROUNDOFF: tl.constexpr, CAP: tl.constexpr, SIDES: tl.constexpr, LARGE: tl.constexpr,
    LONG: tl.constexpr,
):  # fmt: skip
    """All of that; of the chunks that looked_ptr marks also how often each of 64 codes is in each
    of 256 bins, and each of 256 codes in all."""
    chunk, _, _, _, _, inside = chunk_blocks(n)
    code, v, _, _ = quantize_chunk(
        chunk, x_ptr, grid_ptr, codes_ptr, raw_ptr, levels_ptr, seed, n, inner, channels,
        ROUNDOFF, CAP, SIDES, False, LARGE, LONG)  # fmt: skip
    if tl.load(looked_ptr + chunk) != 0:
        more = (code * 0 + 1).to(tl.int64)
        tl.atomic_add(counts_ptr + bin_of(v) * 64 + tl.minimum(code, 63), more, mask=inside)
        tl.atomic_add(counts_ptr + 16384 + tl.minimum(code, 255), more, mask=inside)


@triton.jit
def part_span(
    span, codes_ptr, sums_ptr, places_ptr, counts_ptr, context_ptr, info_ptr, seed, n, contexts,
    ADD: tl.constexpr, LONG: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """How many elements each context has and the place of each element. ADD: the symbols as well,
    into zeros; 65536 and more where a code is not below its base."""
    begin = span * SPAN
    local = tl.arange(0, SIZE)
    each = tl.arange(0, 16)
    key = load_seed(seed)
    counts = each * 0
    tiles = ((tl.minimum(n - begin, SPAN) + SIZE - 1) // SIZE).to(tl.int32)
    for c in range(tiles):
        base = begin + c * SIZE
        k = tl.load(context_ptr + bin_of(dither(key, base, local, tl.float32, LONG)))
        counts += tl.histogram(k, 16, mask=local < n - base)
    tl.store(counts_ptr + span * 16 + each, counts)
    _, _, first = rows_of(counts, info_ptr)
    group = tl.load(info_ptr + each * INFO)
    done = each * 0
    for c in range(tiles):
        base = begin + c * SIZE
        inside = local < n - base
        k = tl.load(context_ptr + bin_of(dither(key, base, local, tl.float32, LONG)))
        place = local * 0
        for j in range(contexts):
            mine = ((k == j) & inside).to(tl.int32)
            rank = pick(done, j) + tl.cumsum(mine, axis=0) - mine
            many = pick(group, j)
            there = (pick(first, j) + rank // many) * 8 + rank % many
            place = tl.where(mine != 0, there, place)
            done += tl.where(each == j, tl.sum(mine), 0)
        tl.store(places_ptr + base + local, place, mask=inside)
        if ADD:
            code = tl.load(codes_ptr + base + local, mask=inside, other=0)
            power = tl.load(info_ptr + k * INFO + 2 + place % 8)
            value = tl.where(code < tl.load(info_ptr + k * INFO + 1), code * power, 65536)
            at = sums_ptr + span * ROOM + (place >> 3)
            tl.atomic_add(at, value, mask=inside & (value != 0))


@triton.jit(do_not_specialize=["seed"])
def part_spans(
    codes_ptr, sums_ptr, places_ptr, counts_ptr, context_ptr, info_ptr, seed, n, contexts,
    ADD: tl.constexpr, LONG: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """A span a program."""
    part_span(tl.program_id(0).to(tl.int64), codes_ptr, sums_ptr, places_ptr, counts_ptr,
              context_ptr, info_ptr, seed, n, contexts, ADD, LONG, SIZE)  # fmt: skip


@triton.jit
def escaped_of(codes_ptr, sums_ptr, places_ptr, base, local, inside):
    """Codes, which are among the extra bits, and the bits they take there."""
    place = tl.load(places_ptr + base + local, mask=inside, other=0)
    symbol = tl.load(sums_ptr + base // SPAN * ROOM + (place >> 3), mask=inside, other=0)
    code = tl.load(codes_ptr + base + local, mask=inside, other=0)
    escaped = inside & (symbol == ESCAPE)
    return code, escaped, tl.where(escaped, 2 * bit_width(code + 1) - 1, 0)


@triton.jit
def measure_chunks(codes_ptr, sums_ptr, places_ptr, bits_ptr, n):
    """The extra bits of each chunk."""
    chunk = tl.program_id(0).to(tl.int64)
    local = tl.arange(0, 4096)
    inside = local < n - chunk * 4096
    _, _, bits = escaped_of(codes_ptr, sums_ptr, places_ptr, chunk * 4096, local, inside)
    tl.store(bits_ptr + chunk, tl.sum(bits).to(tl.int64))


@triton.jit
def write_chunks(
    x_ptr, codes_ptr, sums_ptr, places_ptr, raw_ptr, begins_ptr, kept_ptr, words_ptr, n
):
    """Into words of zeros: extra bits from bit begins_ptr[chunk] on, the values of raw blocks from
    byte kept_ptr[block] on."""
    KIND: tl.constexpr = x_ptr.dtype.element_ty
    ITEM: tl.constexpr = KIND.primitive_bitwidth // 8
    chunk = tl.program_id(0).to(tl.int64)
    base = chunk * 4096
    local = tl.arange(0, 4096)
    inside = local < n - base
    code, escaped, bits = escaped_of(codes_ptr, sums_ptr, places_ptr, base, local, inside)
    start = tl.load(begins_ptr + chunk)
    zeros = bits // 2
    place = (start & 31).to(tl.int32) + tl.cumsum(bits, axis=0) - bits + zeros
    value = (((code + 1) & ((1 << zeros) - 1)) * 2 + 1).to(tl.uint32, bitcast=True)
    merge(words_ptr + (start >> 5), place, value, escaped)
    block = chunk * 64 + local // 64
    raw = tl.load(raw_ptr + block, mask=inside, other=0) != 0
    if tl.max(raw.to(tl.int32)) > 0:
        stored = raw_bits(tl.load(x_ptr + base + local, mask=raw, other=0))
        byte = tl.load(kept_ptr + block, mask=raw, other=0)
        here = (byte & 3).to(tl.int32) * 8 + local % 64 * (8 * ITEM)
        for k in tl.static_range(ITEM):
            octet = ((stored >> (8 * k)) & 255).to(tl.uint32)
            merge(words_ptr + (byte >> 2), here + 8 * k, octet, raw)


@triton.jit
def values_of(
    codes_ptr, sums_ptr, places_ptr, grid_ptr, context_ptr, info_ptr, seed, base, local, inside,
    level, inner, channels,
    KIND: tl.constexpr, SIDES: tl.constexpr, LARGE: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """Elements of a chunk from symbols and escaped codes."""
    channel = channel_of(base, local, inner, channels, LARGE)
    bound = tl.load(grid_ptr + channel)
    v = dither(load_seed(seed), base, local, bound.dtype, LONG)
    k = tl.load(context_ptr + bin_of(v))
    place = tl.load(places_ptr + base + local, mask=inside, other=0)
    symbol = tl.load(sums_ptr + base // SPAN * ROOM + (place >> 3), mask=inside, other=0)
    power = tl.load(info_ptr + k * INFO + 2 + place % 8)
    code = symbol // power % tl.load(info_ptr + k * INFO + 1)
    escaped = inside & (symbol == ESCAPE)
    code = tl.where(escaped, tl.load(codes_ptr + base + local, mask=escaped, other=0), code)
    above, origin, least = inside, bound, bound
    if SIDES:
        origin = tl.load(grid_ptr + 2 * channels + channel)
        least = tl.load(grid_ptr + 3 * channels + channel)
        above = (code & 1) == 0
        bound = tl.where(above, bound, tl.load(grid_ptr + channels + channel))
        r = code >> 1
    else:
        folded = tl.where((code & 1) == 1, (code >> 1) + 1, -(code >> 1))
        r = tl.where(v < 0, -folded, folded)
    step = (bound * 2) * scale_of(level).to(bound.dtype)
    x = decoded(r.to(bound.dtype), v, step, above, origin, least, KIND, SIDES)
    return bf16_bits(x) if KIND == tl.int16 else x.to(KIND)


@triton.jit(do_not_specialize=["seed"])
def read_chunks(
    data_ptr, codes_ptr, sums_ptr, places_ptr, levels_ptr, raw_ptr, kept_ptr, grid_ptr,
    context_ptr, info_ptr, out_ptr, bits_ptr, seed, n, inner, channels, size,
    SIDES: tl.constexpr, LARGE: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """A chunk a program. bits_ptr: the output as integers."""
    KIND: tl.constexpr = out_ptr.dtype.element_ty
    ITEM: tl.constexpr = KIND.primitive_bitwidth // 8
    chunk = tl.program_id(0).to(tl.int64)
    base = chunk * 4096
    local = tl.arange(0, 4096)
    inside = local < n - base
    level = tl.load(levels_ptr + chunk).to(tl.int32)
    y = values_of(codes_ptr, sums_ptr, places_ptr, grid_ptr, context_ptr, info_ptr, seed, base,
                  local, inside, level, inner, channels, KIND, SIDES, LARGE, LONG)  # fmt: skip
    block = chunk * 64 + local // 64
    raw = tl.load(raw_ptr + block, mask=inside, other=0) != 0
    tl.store(out_ptr + base + local, y, mask=inside & ~raw)
    if tl.max(raw.to(tl.int32)) > 0:
        byte = tl.load(kept_ptr + block, mask=raw, other=0) + (local % 64 * ITEM).to(tl.int64)
        value = take_raw(data_ptr, byte, size, raw, ITEM)
        tl.store(bits_ptr + base + local, value.to(bits_ptr.dtype.element_ty), mask=raw)
