"""Error-bounded codes with the entropy stage: binding to csrc/bounded_entropy.cpp."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import BoundedLayout, workspace_size, worst_case
from actzip.kernels.bounded_squeezed import choose_table, look_every, split
from actzip.kernels.entropy_table import SPAN, SYMBOLS, as_tensor
from actzip.kernels.native.bounded import spec
from actzip.kernels.native.entropy import frequency_tensor
from actzip.kernels.native.library import DTYPES, call, threads


def encode(
    x: Tensor, layout: BoundedLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor | None:
    """The payload, or None when plain packing is shorter."""
    values = (x, layout.n, DTYPES[x.dtype], *spec(layout, seed))
    counts = torch.empty(2 * SYMBOLS + 1, dtype=torch.int64)
    packed = call("bounded_count", *values, look_every(layout), counts, threads())
    table = choose_table(counts.tolist(), packed, layout)
    if table is None:
        return None
    how = (frequency_tensor(table.frequencies), table.is_signed)
    levels = torch.empty(layout.chunks, dtype=torch.uint8)
    raw = torch.empty(8 * layout.chunks, dtype=torch.uint8)
    sizes, place = torch.empty(2, -(-layout.n // SPAN), dtype=torch.int64)
    room = workspace_size(layout.n, layout.itemsize)
    workspace = torch.empty(room, dtype=torch.uint8)
    made = (levels, raw, sizes, place, workspace)
    total = call("bounded_squeeze", *values, *how, *made, room, threads())
    head = torch.cat([as_tensor(table.stored(), x.device), levels, raw])
    start = head.numel() + 8 * sizes.numel()
    if bool((sizes < 0).any()) or start + total > worst_case(layout):
        return None
    data = allocate(start + total)
    data[: head.numel()] = head
    places = (data[head.numel() : start], data[start:])
    call("bounded_squeeze_gather", *values, *how, *made, *places, threads())
    return data


def decode(data: Tensor, layout: BoundedLayout, seed: int, out: Tensor) -> None:
    parts = split(data, layout)
    call(
        "bounded_unsqueeze",
        parts.levels,
        parts.raw,
        parts.offsets,
        parts.body,
        parts.body.numel(),
        frequency_tensor(parts.table.frequencies),
        parts.table.is_signed,
        layout.n,
        DTYPES[out.dtype],
        *spec(layout, seed),
        out,
        threads(),
    )
