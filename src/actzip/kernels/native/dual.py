"""Block averages and a group code: binding to csrc/dual.cpp; signatures as in reference/dual.py."""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.dual_layout import DualLayout
from actzip.kernels.native import group
from actzip.kernels.native.library import DTYPES, call, signed, threads


def _scratch(layout: DualLayout) -> Tensor:
    """Room for the maps that a thread codes at once, and a row: Scratch in csrc/dual.cpp."""
    size = layout.rest.group
    chunk = 32 * max(1, 16384 // (32 * size)) if size % 32 else 1
    kind = torch.float64 if layout.rest.dtype == torch.float64 else torch.float32
    return torch.empty(threads() * (chunk * size + layout.axes[2].size), dtype=kind)


def _sizes(layout: DualLayout) -> tuple[int, ...]:
    first = layout.axes[0]
    sizes = (axis.size for axis in layout.axes)
    return (layout.maps, *sizes, first.block, int(first.original))


def encode(x: Tensor, layout: DualLayout, seed: int, data: Tensor) -> int:
    if x.numel() == 0:
        return 0
    averages, rest = data[: layout.averages_size], data[layout.averages_size :]
    return call(
        "dual_encode",
        x,
        DTYPES[x.dtype],
        *_sizes(layout),
        *group.tables(layout.rest),
        layout.rest.rounding,
        signed(seed),
        averages,
        averages.numel(),
        rest,
        rest.numel(),
        _scratch(layout),
        threads(),
    )


def store_raw(x: Tensor, layout: DualLayout, data: Tensor) -> None:
    group.store_raw(x, layout.rest, data[layout.averages_size :])


def decode(data: Tensor, layout: DualLayout, seed: int, out: Tensor) -> None:
    averages, rest = data[: layout.averages_size], data[layout.averages_size :]
    if out.numel() == 0:
        return
    call(
        "dual_decode",
        averages,
        averages.numel(),
        rest,
        rest.numel(),
        out,
        DTYPES[out.dtype],
        *_sizes(layout),
        *group.tables(layout.rest),
        layout.rest.rounding,
        signed(seed),
        _scratch(layout),
        threads(),
    )
