"""Dithered in plain PyTorch, first half: values to codes, and back.

r = round(x / step + v), decoded (r - v) * step. As |v| < 1/2 a small x gives 0, or ±1 with the sign
of v: codes are 0, 1, 2, 3, … for r = 0, s, -s, 2s, … where s is the sign of v.

With an origin the distances of both sides from it are coded so, with codes 2r above the origin and
2r + 1 elsewhere; what comes back on the other side is moved to the origin.
"""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import BLOCK, CAP, CHUNK, SCALE, levels_of
from actzip.kernels.dithered_layout import MOST_EXTRA, DitheredLayout
from actzip.kernels.reference.bounded_symbols import padded
from actzip.kernels.reference.dither import dither


def dither_rows(layout: DitheredLayout, seed: int, device: torch.device) -> Tensor:
    """v of each element, as rows of a chunk."""
    v = dither(seed, layout.first, layout.chunks * CHUNK, device)
    return v.view(-1, CHUNK)


def _spread(each: Tensor, layout: DitheredLayout) -> Tensor:
    """What belongs to an element's channel, as rows of a chunk."""
    index = torch.arange(layout.first, layout.first + layout.chunks * CHUNK, device=each.device)
    return each[index // layout.inner % each.numel()].view(-1, CHUNK)


def _bounds(layout: DitheredLayout, above: Tensor | None) -> Tensor:
    bounds = _spread(layout.bounds, layout)
    if layout.sides is None or above is None:
        return bounds
    return torch.where(above, bounds, _spread(layout.sides.bounds, layout))


def _step(bounds: Tensor, levels: Tensor) -> Tensor:
    scale = torch.tensor(SCALE, dtype=bounds.dtype, device=bounds.device)[levels]
    return (bounds * 2) * scale[:, None]


def quantize(
    x: Tensor, layout: DitheredLayout, seed: int, given: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Codes of n elements as int64, which blocks must be kept raw, and the level of each chunk.
    given: blocks whose codes could take more than MOST_EXTRA extra bits are raw, too."""
    rows = padded(x, CHUNK).to(layout.real)
    distance, above = rows, None
    if layout.sides is not None:
        origin = _spread(layout.sides.origin, layout)
        above = rows > origin
        distance = torch.where(above, rows - origin, origin - rows)
    bounds = _bounds(layout, above)
    inside = (torch.arange(layout.chunks * CHUNK, device=x.device) < layout.n).view(-1, CHUNK)
    levels = _levels(torch.where(inside, distance, torch.zeros_like(distance)), bounds, layout)
    step = _step(bounds, levels)
    v = dither_rows(layout, seed, x.device).to(layout.real)
    t = distance * (1.0 / step)
    r = torch.round(t + v)
    back = _values(r, v, step, above, layout)
    # <= is false for NaN
    good = ((rows - back).abs() <= bounds) & (t.abs() < CAP.get(layout.dtype, 2.0**20))
    raw = ~(good | ~inside).view(-1, BLOCK).all(1)
    good = ~raw.repeat_interleave(BLOCK).view(-1, CHUNK)
    codes = _codes(torch.where(good, r, torch.zeros_like(r)).long(), v, above)
    codes = torch.where(good, codes, torch.zeros_like(codes))
    if given:
        bits = 2 * torch.frexp((codes + 1).double()).exponent - 1
        bits = torch.where(inside, bits, torch.zeros_like(bits))
        raw = raw | (bits.view(-1, BLOCK).sum(1) > MOST_EXTRA)
        good = ~raw.repeat_interleave(BLOCK).view(-1, CHUNK)
        codes = torch.where(good, codes, torch.zeros_like(codes))
    return codes.view(-1)[: layout.n], raw[: layout.blocks], levels


def dequantize(codes: Tensor, layout: DitheredLayout, levels: Tensor, seed: int) -> Tensor:
    """n values, flat, from their codes."""
    rows = padded(codes, CHUNK)
    v = dither_rows(layout, seed, codes.device).to(layout.real)
    above = None
    if layout.sides is not None:
        above = rows % 2 == 0
        r = rows // 2
    else:
        folded = torch.where(rows % 2 == 1, (rows + 1) // 2, -(rows // 2))
        r = torch.where(v < 0, -folded, folded)
    step = _step(_bounds(layout, above), levels)
    found = _values(r.to(layout.real), v, step, above, layout)
    return found.to(layout.dtype).view(-1)[: layout.n]


def _levels(distance: Tensor, bounds: Tensor, layout: DitheredLayout) -> Tensor:
    """The level of each chunk, from its largest finite |x / step| at level 0."""
    zero = torch.zeros(layout.chunks, dtype=torch.long, device=bounds.device)
    ratio = (distance * (1.0 / _step(bounds, zero))).abs()
    ratio = torch.where(ratio < torch.inf, ratio, torch.zeros_like(ratio))
    return levels_of(ratio.amax(1).double(), layout.dtype)


def _codes(r: Tensor, v: Tensor, above: Tensor | None) -> Tensor:
    if above is not None:
        return 2 * r.clamp(min=0) + (~above).long()
    folded = torch.where(v < 0, -r, r)
    return torch.where(folded > 0, 2 * folded - 1, -2 * folded)


def _values(
    r: Tensor, v: Tensor, step: Tensor, above: Tensor | None, layout: DitheredLayout
) -> Tensor:
    """What codes with these r decode to, rounded to the stored type."""
    found = (r - v) * step
    if layout.sides is None or above is None:
        return found.to(layout.dtype).to(layout.real)
    origin = _spread(layout.sides.origin, layout)
    found = torch.where(above, origin + found, origin - found)
    found = found.to(layout.dtype).to(layout.real)
    least = _spread(layout.sides.above, layout)
    # spelled out, as the C++ twin has it: minimum(-0, 0) may be either
    up = torch.where(found > least, found, least)
    return torch.where(above, up, torch.where(found < origin, found, origin))
