"""Bounded in plain PyTorch, second half: symbols to bytes, block by block, and back.

The host reads one number of an encode, the size of its payload (`encode_within` leaves it on the
device), and one of a decode, whether bytes from outside are damaged. A few chunks are worked on at
a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import (
    BITMAP,
    BLOCK,
    BLOCKS_PER_CHUNK,
    DELTA,
    MAX_WIDTH,
    OFFSET_MASK,
    PLAIN,
    RAW,
    SCALE,
    BoundedLayout,
    sections,
)
from actzip.kernels.errors import DamagedError
from actzip.kernels.reference.bounded_symbols import (
    dequantize,
    padded,
    quantize,
    residuals,
    unpredict,
)
from actzip.kernels.reference.parts import blocks_of, chunks_of, part_of, parts
from actzip.kernels.reference.scattered import put, put_codes, take, take_codes


def encode(
    x: Tensor, layout: BoundedLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor:
    if not layout.n:
        return allocate(0)
    starts, levels, headers, total = _measure(x, layout, seed)
    body = torch.zeros(int(total) + 1, dtype=torch.uint8, device=x.device)
    _fill(body, x, layout, seed, starts)
    table = 8 * layout.chunks + layout.blocks
    data = allocate(table + body.numel() - 1)
    _head(data, layout, starts, levels, headers)
    data[table:] = body[:-1]
    return data


def encode_within(x: Tensor, layout: BoundedLayout, seed: int, data: Tensor) -> Tensor:
    starts, levels, headers, total = _measure(x, layout, seed)
    table = 8 * layout.chunks + layout.blocks
    _head(data, layout, starts, levels, headers)
    body = data[table:]
    body.zero_()
    _fill(body, x, layout, seed, starts)
    return total + table


def _measure(x: Tensor, layout: BoundedLayout, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Where blocks begin, levels of chunks, headers, and where the last block ends."""
    found = []
    for part in parts(layout):
        symbols, raw, levels = quantize(part_of(x, part), part, seed)
        headers, _, present = _choose(symbols, raw, part)
        found.append((levels, headers.to(torch.uint8), _sizes(headers, present, part)))
    levels, headers, sizes = (torch.cat(each) for each in zip(*found, strict=True))
    ends = sizes.cumsum(0)
    return ends - sizes, levels, headers, ends[-1]


def _head(
    data: Tensor, layout: BoundedLayout, starts: Tensor, levels: Tensor, headers: Tensor
) -> None:
    table = 8 * layout.chunks
    data[:table] = (starts[::BLOCKS_PER_CHUNK] | levels << 56).view(torch.uint8)
    data[table : table + layout.blocks] = headers


def _fill(body: Tensor, x: Tensor, layout: BoundedLayout, seed: int, starts: Tensor) -> None:
    """All blocks into zeros, of which the last is nobody's."""
    for part in parts(layout):
        symbols, raw, _ = quantize(part_of(x, part), part, seed)
        _write(body, blocks_of(starts, part), *_choose(symbols, raw, part), part_of(x, part), part)


def decode(
    data: Tensor, layout: BoundedLayout, seed: int, out: Tensor, trusted: bool = False
) -> None:
    cut = sections(layout, data)
    if cut is None:
        raise DamagedError(
            f"bounded_decode: {data.numel()} bytes are too few for {layout.n} values"
        )
    if not layout.n:
        return
    table, headers, body = cut
    entries = table.clone().view(torch.int64)
    levels, offsets = entries >> 56 & 255, entries & OFFSET_MASK
    ends = torch.cat([offsets[1:], torch.full_like(offsets[:1], body.numel())])
    damaged = (levels >= len(SCALE)).any() | (offsets > ends).any() | (ends > body.numel()).any()
    damaged |= ((headers != RAW) & ((headers // 32 > DELTA) | (headers % 32 > MAX_WIDTH))).any()
    levels = levels.clamp(max=len(SCALE) - 1)
    body = torch.nn.functional.pad(body, (0, 1))
    starts = torch.zeros(layout.blocks, dtype=torch.int64, device=out.device)
    past: list[Tensor] = []

    def read() -> Iterator[tuple[BoundedLayout, Tensor]]:
        for part in parts(layout):
            codes = blocks_of(headers, part).long()
            end, begins, symbols = _read(body, chunks_of(offsets, part), codes, part)
            blocks_of(starts, part).copy_(begins)
            past.append((end > chunks_of(ends, part)).any())
            yield part, symbols

    for part, symbols in unpredict(read(), layout, headers // 32 == DELTA):
        values = dequantize(symbols, part, chunks_of(levels, part), seed)
        kept = take(body, blocks_of(starts, part), BLOCK * part.itemsize).view(part.dtype)
        is_raw = (blocks_of(headers, part) == RAW).view(-1, 1)
        found = torch.where(is_raw, kept, padded(values, BLOCK))
        part_of(out, part).copy_(found.view(-1)[: part.n])
    if not trusted and bool(torch.stack([damaged, *past]).any()):
        raise DamagedError("bounded_decode: the stored bytes are damaged")


def packed_sizes(symbols: Tensor, raw: Tensor, layout: BoundedLayout) -> Tensor:
    """Bytes of each block when packed."""
    headers, _, present = _choose(symbols, raw, layout)
    return _sizes(headers, present, layout)


def _lengths(layout: BoundedLayout, device: torch.device) -> Tensor:
    """Values of each block: 64, fewer in the last."""
    return (layout.n - BLOCK * torch.arange(layout.blocks, device=device)).clamp(max=BLOCK)


def _choose(symbols: Tensor, raw: Tensor, layout: BoundedLayout) -> tuple[Tensor, Tensor, Tensor]:
    """Header, codes and which codes are there, for each block; the rules of bounded_encode.hpp."""
    lengths = _lengths(layout, symbols.device)
    inside = torch.arange(BLOCK, device=symbols.device) < lengths[:, None]
    is_signed = (symbols < 0).any(1)
    codes = torch.where(is_signed[:, None], zigzag(symbols), symbols)
    largest = codes.amax(1)
    width, short = _bit_width(largest), _bit_width((largest - 1).clamp(min=0))
    nonzero = symbols != 0
    count = nonzero.sum(1)
    plain = (lengths * width + 7) // 8
    bitmap = (lengths + 7) // 8 + (count * short + 7) // 8
    raw = raw | ((width > 0) & (torch.minimum(plain, bitmap) >= lengths * layout.itemsize))
    left = residuals(symbols * ~raw.view(-1, 1), layout)
    steps = zigzag(left) * inside
    delta_width = _bit_width(steps.amax(1))
    delta = (lengths * delta_width + 7) // 8
    use_delta = (width > 0) & (4 * count >= 3 * lengths) & (delta < torch.minimum(plain, bitmap))
    use_bitmap = (width > 0) & (bitmap < plain) & ~use_delta
    headers = (PLAIN + is_signed.long()) * 32 + width
    headers = torch.where(use_bitmap, (BITMAP + is_signed.long()) * 32 + short, headers)
    headers = torch.where(use_delta, DELTA * 32 + delta_width, headers)
    headers = torch.where(raw, torch.full_like(headers, RAW), headers)
    codes = torch.where(use_bitmap[:, None], (codes - 1).clamp(min=0), codes)
    codes = torch.where(use_delta[:, None], steps, codes)
    return headers, codes, torch.where(use_bitmap[:, None], nonzero, inside)


def _is_map(headers: Tensor) -> Tensor:
    return (headers // 32 & ~1 == BITMAP) & (headers != RAW)


def _sizes(headers: Tensor, present: Tensor, layout: BoundedLayout) -> Tensor:
    lengths = _lengths(layout, headers.device)
    size = (present.sum(1) * (headers % 32) + 7) // 8
    size = size + torch.where(headers // 32 & ~1 == BITMAP, (lengths + 7) // 8, 0)
    return torch.where(headers == RAW, lengths * layout.itemsize, size)


def zigzag(s: Tensor) -> Tensor:
    return torch.where(s < 0, -2 * s - 1, 2 * s)


def unzigzag(u: Tensor) -> Tensor:
    return torch.where(u & 1 == 1, -(u >> 1) - 1, u >> 1)


def _bit_width(v: Tensor) -> Tensor:
    return (v[:, None] >= 2 ** torch.arange(MAX_WIDTH + 1, device=v.device)).sum(1)


def _positions(present: Tensor, width: Tensor) -> Tensor:
    """The bit at which each present code begins."""
    there = present.long()
    return (there.cumsum(1) - there) * width.unsqueeze(1)


def _write(
    body: Tensor, starts: Tensor, headers: Tensor, codes: Tensor, present: Tensor, x: Tensor,
    layout: BoundedLayout,
) -> None:  # fmt: skip
    """The blocks of a part to their places."""
    lengths = _lengths(layout, body.device)
    raw, is_map = headers == RAW, _is_map(headers)
    width = headers % 32 * ~raw
    map_size = (lengths + 7) // 8 * is_map
    weights = 1 << torch.arange(8, device=body.device)
    maps = (present.view(-1, 8, 8) * weights).sum(2).to(torch.uint8)
    put(body, starts, maps, map_size)
    size = (present.sum(1) * width + 7) // 8
    octets = put_codes(codes * present * ~raw.view(-1, 1), _positions(present, width),
                       BLOCK * MAX_WIDTH // 8, MAX_WIDTH)  # fmt: skip
    put(body, starts + map_size, octets, size)
    values = padded(x, BLOCK).view(torch.uint8)
    put(body, starts, values, lengths * layout.itemsize * raw)


def _read(
    body: Tensor, offsets: Tensor, headers: Tensor, layout: BoundedLayout
) -> tuple[Tensor, Tensor, Tensor]:
    """Where each chunk of a part ends, where its blocks begin, and symbols or residuals."""
    end, starts, present = _locate(body, offsets, headers, layout)
    raw, is_map = headers == RAW, _is_map(headers)
    width = headers % 32 * ~raw
    map_size = (_lengths(layout, body.device) + 7) // 8 * is_map
    widths = width.unsqueeze(1).expand(-1, BLOCK)
    codes = take_codes(body, starts + map_size, _positions(present, width), widths, 31)
    codes = (codes + is_map.view(-1, 1)) * present * ~raw.view(-1, 1)
    signed = ((headers // 32 & 1 == 1) | (headers // 32 == DELTA)) & ~raw
    return end, starts, torch.where(signed.view(-1, 1), unzigzag(codes), codes)


def _locate(
    body: Tensor, offsets: Tensor, headers: Tensor, layout: BoundedLayout
) -> tuple[Tensor, Tensor, Tensor]:
    """Where each chunk ends, where each block begins, and which of its codes are there."""
    lengths = _lengths(layout, body.device)
    present = torch.arange(BLOCK, device=body.device) < lengths[:, None]
    is_map, starts, at = _is_map(headers), torch.zeros_like(headers), offsets.clone()
    place = torch.arange(8, device=body.device)
    for b in range(min(BLOCKS_PER_CHUNK, layout.blocks)):  # the chunks side by side
        rows = slice(b, None, BLOCKS_PER_CHUNK)
        here = at[: starts[rows].numel()]
        bits = (take(body, here, 8).unsqueeze(2) >> place & 1).flatten(1).bool()
        present[rows] &= bits | ~is_map[rows].unsqueeze(1)
        starts[rows] = here
        coded = (present[rows].sum(1) * (headers[rows] % 32) + 7) // 8
        size = coded + (lengths[rows] + 7) // 8 * is_map[rows]
        whole = lengths[rows] * layout.itemsize
        here += torch.where(headers[rows] == RAW, whole, size)
    return at, starts, present
