"""Block averages and a group code of what is left of each map, in plain PyTorch.

An average is summed down the columns of its block and then along the row of column sums, divided,
and rounded to the upper half of its bits (bfloat16). x = (lo + (code - v) * step) + average.
"""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.dual_layout import Axis, DualLayout
from actzip.kernels.errors import DamagedError
from actzip.kernels.reference import group
from actzip.kernels.reference.metadata import REAL


def encode(x: Tensor, layout: DualLayout, seed: int, data: Tensor) -> int:
    """Averages, metadata and codes of a 1-D tensor; returns the elements in raw maps.

    When that is not zero, `store_raw` must follow with a larger `data`.
    """
    if x.numel() == 0:
        return 0
    means, rest = _split(x, layout)
    raw = group.measure(rest, layout.rest).raw.view(-1, 1, 1, 1)
    means = torch.where(raw, torch.zeros_like(means), means)
    data[: layout.averages_size] = _store(means)
    return group.encode(rest, layout.rest, seed, data[layout.averages_size :])


def residual(x: Tensor, layout: DualLayout) -> Tensor:
    """What is left of a 1-D tensor without its averages; NaN throughout a map that is raw for
    its averages' sake."""
    return _split(x, layout)[1] if x.numel() else x.to(group.real_type(x.dtype))


def _split(x: Tensor, layout: DualLayout) -> tuple[Tensor, Tensor]:
    maps = _maps(x, layout)
    means = _average(maps, layout)
    rest = maps - _spread(means, layout)
    sane = (means.abs() <= REAL[means.dtype].largest).flatten(1).all(1)
    rest = torch.where(sane.view(-1, 1, 1, 1), rest, torch.full_like(rest, float("nan")))
    return means, rest.reshape(-1)


def store_raw(x: Tensor, layout: DualLayout, data: Tensor) -> None:
    """The raw maps of x, as they are, behind the codes."""
    group.store_raw(x, layout.rest, data[layout.averages_size :])


def decode(data: Tensor, layout: DualLayout, seed: int, out: Tensor) -> None:
    if data.numel() < layout.averages_size:
        raise DamagedError(f"averages need {layout.averages_size} bytes, got {data.numel()}")
    if out.numel() == 0:
        return
    coded = data[layout.averages_size :]
    rest = group.decode_real(coded, layout.rest, seed, out.element_size())
    means = _load(data[: layout.averages_size], layout)
    x = _maps(rest, layout) + _spread(means, layout)
    if out.dtype == torch.float16:
        x = x.clamp(-65504.0, 65504.0)  # half a step beyond the range must not be infinity
    out.copy_(x.reshape(-1))
    group.restore_raw(coded, layout.rest, out)


def _maps(x: Tensor, layout: DualLayout) -> Tensor:
    return x.view(layout.maps, *(axis.size for axis in layout.axes)).to(group.real_type(x.dtype))


def _average(x: Tensor, layout: DualLayout) -> Tensor:
    """(maps, depth blocks, height blocks, width blocks), rounded to what is stored."""
    depth, height, width = layout.axes
    rows = []
    for d in range(depth.blocks):
        for h in range(height.blocks):
            lines = [x[:, i, j] for i in depth.span(d) for j in height.span(h)]
            columns = torch.zeros_like(x[:, 0, 0])
            for line in lines:
                columns = columns + line
            rows.append(
                torch.stack([_mean(columns, len(lines), width, b) for b in range(width.blocks)], -1)
            )
    means = torch.stack(rows, 1).view(-1, depth.blocks, height.blocks, width.blocks)
    real = REAL[means.dtype]
    bits = means.view(real.bits)
    even = bits >> real.shift & 1
    return ((bits + (real.low >> 1) + even) & ~real.low).view(means.dtype)


def _mean(columns: Tensor, rows: int, width: Axis, b: int) -> Tensor:
    total = torch.zeros_like(columns[:, 0])
    for i in width.span(b):
        total = total + columns[:, i]
    return total / float(rows * len(width.span(b)))


def _spread(means: Tensor, layout: DualLayout) -> Tensor:
    """Each average over the positions it stands for."""
    for dim, axis in enumerate(layout.axes, start=1):
        index = torch.tensor([axis.block_of(i) for i in range(axis.size)], device=means.device)
        means = means.index_select(dim, index)
    return means


def _store(means: Tensor) -> Tensor:
    real = REAL[means.dtype]
    return (means.flatten().view(real.bits) >> real.shift).to(real.half).view(torch.uint8)


def _load(data: Tensor, layout: DualLayout) -> Tensor:
    kind = group.real_type(layout.rest.dtype)
    real = REAL[kind]
    wide = (data.clone().view(real.half).to(real.bits) << real.shift).view(kind)
    return wide.view(layout.maps, *(axis.blocks for axis in layout.axes))
