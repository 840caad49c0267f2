"""Block averages of maps in plain PyTorch: the twin of csrc/dual/map.hpp.

A map is depth x height x width. Sums run in a fixed order, down the columns of a block first and
then along the row of column sums, so that every backend agrees.
"""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.dual_layout import Axis
from actzip.kernels.reference.metadata import REAL

_Axes = tuple[Axis, Axis, Axis]


def average(x: Tensor, axes: _Axes, zero: bool) -> Tensor:
    """(maps, depth blocks, height blocks, width blocks), rounded to what is stored.

    zero: averages of the elements that are not zero, 0 where there are none.
    """
    total = _sums(x, axes)
    count = _sums((x != 0).to(x.dtype) if zero else torch.ones_like(x[:1]), axes)
    means = torch.where(count != 0, total / count, torch.zeros_like(total))
    real = REAL[means.dtype]
    bits = means.view(real.bits)
    even = bits >> real.shift & 1
    return ((bits + (real.low >> 1) + even) & ~real.low).view(means.dtype)


def spread(means: Tensor, axes: _Axes) -> Tensor:
    """Each average over the positions it stands for."""
    for dim, axis in enumerate(axes, start=1):
        index = torch.tensor([axis.block_of(i) for i in range(axis.size)], device=means.device)
        means = means.index_select(dim, index)
    return means


def _sums(x: Tensor, axes: _Axes) -> Tensor:
    depth, height, width = axes
    rows = []
    for d in range(depth.blocks):
        for h in range(height.blocks):
            columns = torch.zeros_like(x[:, 0, 0])
            for i in depth.span(d):
                for j in height.span(h):
                    columns = columns + x[:, i, j]
            rows.append(torch.stack([_along(columns, width, b) for b in range(width.blocks)], -1))
    return torch.stack(rows, 1).view(-1, depth.blocks, height.blocks, width.blocks)


def _along(columns: Tensor, width: Axis, b: int) -> Tensor:
    total = torch.zeros_like(columns[:, 0])
    for i in width.span(b):
        total = total + columns[:, i]
    return total
