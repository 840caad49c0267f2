"""Block averages of maps in plain PyTorch: the twin of csrc/dual/map.hpp.

A map is depth x height x width. Sums run in a fixed order, down the columns of a block first and
then along the row of column sums, so that every backend agrees.
"""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.dual_layout import Axis
from actzip.kernels.reference.metadata import REAL
from actzip.kernels.reference.tables import table

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


def block_of(axes: _Axes, device: torch.device) -> Tensor:
    """For each position of a map the number of its average."""
    found = torch.zeros(1, dtype=torch.int64, device=device)
    for axis in axes:
        along = tuple(axis.block_of(i) for i in range(axis.size))
        found = (found.view(-1, 1) * axis.blocks + table(along, torch.int64, device)).view(-1)
    return found


def spread(means: Tensor, axes: _Axes) -> Tensor:
    """Each average over the positions it stands for: (maps, depth, height, width)."""
    each = means.flatten(1)[:, block_of(axes, means.device)]
    return each.view(-1, *(axis.size for axis in axes))


def _sums(x: Tensor, axes: _Axes) -> Tensor:
    """Sums of all blocks side by side; a short block is filled up with zeros, which add nothing."""
    missing = [axis.blocks * axis.k - axis.size for axis in axes]
    if any(n > 0 for n in missing):
        ends = [end for n in reversed(missing) for end in (0, max(0, n))]
        x = torch.nn.functional.pad(x, ends)
    depth, height, width = axes
    sizes = [(axis.blocks, axis.k) for axis in axes]
    x = x[:, : depth.blocks * depth.k, : height.blocks * height.k, : width.blocks * width.k]
    x = x.unflatten(3, sizes[2]).unflatten(2, sizes[1]).unflatten(1, sizes[0])
    columns = torch.zeros_like(x[:, :, 0, :, 0])
    for i in range(depth.k):
        for j in range(height.k):
            columns += x[:, :, i, :, j]
    total = torch.zeros_like(columns[..., 0])
    for i in range(width.k):
        total += columns[..., i]
    return total
