"""Bounded in plain PyTorch, first half: values to symbols on their grid, and back.

Symbol 0 is an exact zero. With dither a non-zero value with the quantized integer q has the symbol
q + 1 for q >= 0 and q below, so nothing else decodes to zero; without, the symbol is q.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import (
    BLOCK,
    BLOCKS_PER_CHUNK,
    CAP,
    CHUNK,
    SCALE,
    BoundedLayout,
    levels_of,
)
from actzip.kernels.reference.dither import dither


def padded(x: Tensor, size: int) -> Tensor:
    """x followed by zeros, as rows of `size`."""
    rows = -(-x.numel() // size)
    return torch.cat([x, x.new_zeros(rows * size - x.numel())]).view(rows, size)


def _grid(layout: BoundedLayout, levels: Tensor) -> tuple[Tensor, Tensor]:
    """Bound and step of each element, as rows of a chunk; `levels` has one number per chunk."""
    device = levels.device
    index = torch.arange(layout.first, layout.first + layout.chunks * CHUNK, device=device)
    bounds = layout.bounds[index // layout.inner % layout.bounds.numel()].view(-1, CHUNK)
    scale = torch.tensor(SCALE, dtype=layout.real, device=device)[levels]
    return bounds, (bounds * 2) * scale[:, None]


def _dither_rows(layout: BoundedLayout, seed: int, device: torch.device) -> Tensor:
    if not layout.dither:
        return torch.zeros(layout.chunks, CHUNK, dtype=layout.real, device=device)
    v = dither(seed, layout.first, layout.chunks * CHUNK, device)
    return v.view(-1, CHUNK).to(layout.real)


def _levels(x: Tensor, layout: BoundedLayout) -> Tensor:
    """The level of each chunk, from its largest finite |x / step| at level 0."""
    _, step = _grid(layout, torch.zeros(layout.chunks, dtype=torch.long, device=x.device))
    ratio = (x * (1.0 / step)).abs()
    ratio = torch.where(ratio < torch.inf, ratio, torch.zeros_like(ratio))
    return levels_of(ratio.amax(1).double(), layout.dtype)


def quantize(x: Tensor, layout: BoundedLayout, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Symbols (blocks, 64) as int64, which blocks must be kept raw, and the level of each chunk."""
    rows = padded(x, CHUNK).to(layout.real)
    levels = _levels(rows, layout)
    bounds, step = _grid(layout, levels)
    v = _dither_rows(layout, seed, x.device)
    t = rows * (1.0 / step)
    r = torch.round(t + v)
    back = ((r - v) * step).to(layout.dtype).to(layout.real)
    # <= is false for NaN; with dither nothing but zero may come back as zero
    good = ((rows - back).abs() <= bounds) & (t.abs() < CAP.get(layout.dtype, 2.0**20))
    if layout.dither and layout.itemsize == 2:
        good &= (back != 0) | (rows == 0)
    q = torch.where(good, r, torch.zeros_like(r)).long()
    symbols = torch.where(q >= 0, q + 1, q) if layout.dither else q
    raw = ~good.view(-1, BLOCK).all(1)
    symbols = torch.where(rows == 0, torch.zeros_like(symbols), symbols).view(-1, BLOCK)
    symbols = symbols * ~raw.view(-1, 1)
    return symbols[: layout.blocks], raw[: layout.blocks], levels


def dequantize(symbols: Tensor, layout: BoundedLayout, levels: Tensor, seed: int) -> Tensor:
    """Values, flat, from symbols (blocks, 64)."""
    rows = padded(symbols.reshape(-1), CHUNK)
    _, step = _grid(layout, levels)
    q = torch.where(rows > 0, rows - 1, rows) if layout.dither else rows
    back = (q.to(layout.real) - _dither_rows(layout, seed, symbols.device)) * step
    back = torch.where(rows == 0, torch.zeros_like(back), back)
    return back.to(layout.dtype).view(-1)[: layout.n]


def _neighbours(layout: BoundedLayout, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """For each element of each chunk, whether it has a left, an upper and a corner neighbour."""
    index = torch.arange(layout.first, layout.first + layout.chunks * CHUNK, device=device)
    place = index % CHUNK
    column = index % layout.width > 0
    row = index // layout.width % layout.height > 0
    left = column & (place > 0)
    above = row & (place >= layout.width)
    corner = column & row & (place > layout.width)
    return left.view(-1, CHUNK), above.view(-1, CHUNK), corner.view(-1, CHUNK)


def _shifted(rows: Tensor, by: int, there: Tensor) -> Tensor:
    moved = torch.zeros_like(rows)
    if by < CHUNK:
        moved[:, by:] = rows[:, : CHUNK - by]
    return torch.where(there, moved, torch.zeros_like(moved))


def residuals(symbols: Tensor, layout: BoundedLayout) -> Tensor:
    """Lorenzo residuals (blocks, 64); neighbours outside of chunk or map count as zero."""
    rows = padded(symbols.reshape(-1), CHUNK)
    if layout.width == 0:
        first = torch.zeros_like(rows[:, :1])
        found = rows - torch.cat([first, rows[:, :-1]], 1)
    else:
        left, above, corner = _neighbours(layout, symbols.device)
        found = rows - _shifted(rows, 1, left) - _shifted(rows, layout.width, above)
        found += _shifted(rows, layout.width + 1, corner)
    return found.view(-1, BLOCK)[: symbols.shape[0]]


def unpredict(
    read: Iterable[tuple[BoundedLayout, Tensor]], layout: BoundedLayout, delta: Tensor | None = None
) -> Iterator[tuple[BoundedLayout, Tensor]]:
    """Turns residuals back into symbols (blocks, 64) in those blocks where `delta` is set, or all.

    Part by part in one dimension; in maps after all was read, an element of all chunks at a time.
    Sums are modulo 2^32, as the C++ twin computes: damaged bytes may run away.
    """

    def of(part: BoundedLayout) -> Tensor:
        blocks = slice(part.first // BLOCK, part.first // BLOCK + part.blocks)
        here = torch.ones(part.blocks, dtype=torch.bool) if delta is None else delta[blocks]
        return padded(here.to(layout.bounds.device), BLOCKS_PER_CHUNK)

    if layout.width == 0:
        for part, symbols in read:
            whole = padded(symbols.reshape(-1), CHUNK).to(torch.int32)
            _add_up(whole.unflatten(1, (-1, BLOCK)), of(part))
            yield part, whole.view(-1, BLOCK)[: part.blocks]
        return
    held, seen = None, []
    for part, symbols in read:
        if held is None:
            shape = (layout.chunks * BLOCKS_PER_CHUNK, BLOCK)
            held = torch.zeros(shape, dtype=torch.int32, device=symbols.device)
        held[part.first // BLOCK :][: part.blocks] = symbols
        seen.append(part)
    if held is None:
        return
    _add_up_in_maps(held.view(-1, CHUNK), of(layout), layout)
    for part in seen:
        yield part, held[part.first // BLOCK :][: part.blocks]


def _add_up(blocks: Tensor, delta: Tensor) -> None:
    """Each block from the last value of the one before it in its chunk."""
    last = torch.zeros_like(blocks[:, 0, 0])
    for b in range(BLOCKS_PER_CHUNK):
        here, is_delta = blocks[:, b], delta[:, b].unsqueeze(1)
        sums = here.cumsum(1, dtype=torch.int32) + last.unsqueeze(1)
        blocks[:, b] = torch.where(is_delta, sums, here)
        last = blocks[:, b, -1]


def _add_up_in_maps(rows: Tensor, delta: Tensor, layout: BoundedLayout) -> None:
    """Element after element, all chunks side by side."""
    if not bool(delta.any()):
        return
    first = layout.first + CHUNK * torch.arange(len(rows), device=rows.device)
    width = layout.width
    for i in range(min(CHUNK, layout.n)):
        column = (first + i) % width > 0
        row = (first + i) // width % layout.height > 0
        guess = torch.zeros_like(rows[:, 0])
        if i > 0:
            guess = guess + rows[:, i - 1] * column
        if i >= width:
            guess = guess + rows[:, i - width] * row
        if i > width:
            guess = guess - rows[:, i - width - 1] * (column & row)
        rows[:, i] += guess * delta[:, i // BLOCK]
