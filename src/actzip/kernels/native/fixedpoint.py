"""Per-channel fixed point: binding to csrc/fixedpoint/; the twin of reference/fixedpoint.py."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import workspace_size
from actzip.kernels.errors import DamagedError
from actzip.kernels.fixedpoint_layout import FixedPointLayout
from actzip.kernels.native.library import DTYPES, call, signed, threads


def largest(x: Tensor, layout: FixedPointLayout) -> Tensor:
    """The largest finite magnitude of each channel."""
    found = torch.zeros(len(layout.bits), dtype=layout.real)
    call(
        "fixedpoint_range",
        x,
        layout.n,
        DTYPES[x.dtype],
        len(layout.bits),
        layout.inner,
        found,
        threads(),
    )
    return found


def encode(
    x: Tensor, layout: FixedPointLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor:
    most = largest(x, layout)
    steps, limits = layout.steps(most), layout.limits(most)
    bits = torch.tensor(layout.bits, dtype=torch.uint8)
    shape = (len(layout.bits), layout.inner, signed(seed), layout.rounding, layout.skip_zeros)
    values = (x, layout.n, DTYPES[x.dtype], bits, steps, limits, *shape)
    sizes, place = torch.empty(2, layout.chunks, dtype=torch.int64)
    room = workspace_size(layout.n, layout.dtype.itemsize)
    workspace = torch.empty(room, dtype=torch.uint8)
    total = call("fixedpoint_encode", *values, sizes, place, workspace, threads())
    start = layout.steps_size + 8 * layout.chunks
    data = allocate(start + total)
    data[: layout.steps_size] = steps.view(torch.uint8)
    ready = (sizes, place, workspace, data[layout.steps_size : start], data[start:])
    call("fixedpoint_gather", *values, *ready, threads())
    return data


def encode_within(x: Tensor, layout: FixedPointLayout, seed: int, data: Tensor) -> Tensor:
    return torch.tensor(encode(x, layout, seed, lambda nbytes: data[:nbytes]).numel())


def decode(
    data: Tensor, layout: FixedPointLayout, seed: int, out: Tensor, trusted: bool = False
) -> None:
    start = layout.steps_size + 8 * layout.chunks
    if data.numel() < start:
        raise DamagedError(f"fixedpoint_decode: {data.numel()} bytes are too few")
    bits = torch.tensor(layout.bits, dtype=torch.uint8)
    shape = (len(layout.bits), layout.inner, signed(seed), layout.rounding, layout.skip_zeros)
    body = data[start:]
    call(
        "fixedpoint_decode",
        data[layout.steps_size : start],
        body,
        layout.n,
        DTYPES[out.dtype],
        bits,
        data[: layout.steps_size],
        *shape,
        out,
        threads(),
    )
