"""Block averages and a group code: binding to csrc/dual/dual.cpp and last.cpp.

Signatures as in reference/dual.py."""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.dual_layout import DualLayout
from actzip.kernels.native import group
from actzip.kernels.native.library import DTYPES, call, signed, threads
from actzip.kernels.reference import dual as reference
from actzip.kernels.reference.group import check as group_check


def _scratch(layout: DualLayout) -> Tensor:
    """Room for what a thread codes at once: Scratch in dual.cpp, Bench in dual_channels.hpp."""
    size, width = layout.size, layout.axes[2].size
    if layout.channels:
        tile = layout.channels if layout.channels % 32 else 32
        room = tile * (size + 2 * width + layout.averages) + 5 * (tile + 32)
    else:
        chunk = 32 * max(1, 16384 // (32 * size)) if size % 32 else 1
        rows = layout.axes[1].k if width < 48 else 1
        room = chunk * size + 2 * (-(-width // 16) * 16) + max(rows * width, width + 32)
    kind = torch.float64 if layout.rest.dtype == torch.float64 else torch.float32
    return torch.empty(threads() * room, dtype=kind)


def _sizes(layout: DualLayout) -> tuple[int, ...]:
    first, channels = layout.axes[0], layout.channels
    maps = (layout.maps // channels, channels) if channels else (layout.maps,)
    sizes = (axis.size for axis in layout.axes)
    return (*maps, *sizes, first.block, int(first.original))


def _coding(layout: DualLayout, seed: int | Tensor) -> tuple[int | Tensor, ...]:
    rest = layout.rest
    return (*rest.tables, rest.rounding, rest.zero, signed(seed))


def encode(x: Tensor, layout: DualLayout, seed: int | Tensor, data: Tensor) -> int:
    if x.numel() == 0:
        return 0
    averages, rest = data[: layout.averages_size], data[layout.averages_size :]
    return call(
        "dual_last_encode" if layout.channels else "dual_encode",
        x,
        DTYPES[x.dtype],
        *_sizes(layout),
        *_coding(layout, seed),
        averages,
        rest,
        _scratch(layout),
        threads(),
    )


def store_raw(x: Tensor, layout: DualLayout, data: Tensor) -> None:
    if layout.channels:
        reference.store_raw(x, layout, data)
    else:
        group.store_raw(x, layout.rest, data[layout.averages_size :])


def decode(
    data: Tensor, layout: DualLayout, seed: int | Tensor, out: Tensor, trusted: bool = False
) -> None:
    averages, rest = data[: layout.averages_size], data[layout.averages_size :]
    if out.numel() == 0:
        return
    raw = call(
        "dual_last_decode" if layout.channels else "dual_decode",
        averages,
        rest,
        out,
        DTYPES[out.dtype],
        *_sizes(layout),
        *_coding(layout, seed),
        _scratch(layout),
        threads(),
    )
    if layout.channels and (raw or rest.numel() > layout.rest.offsets[-1]):
        group_check(rest, layout.rest, out.element_size(), trusted)
        reference.restore_raw(data, layout, out)


def nonzero(data: Tensor, layout: DualLayout, out: Tensor) -> None:
    group.nonzero(data[layout.averages_size :], layout.rest, out)
