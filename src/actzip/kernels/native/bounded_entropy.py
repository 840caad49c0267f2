"""Error-bounded codes with the entropy stage: binding to csrc/bounded/entropy.cpp."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from actzip.kernels.bounded_entropy_layout import NEGATIVE, choose, head, look_every, split
from actzip.kernels.bounded_layout import BoundedLayout, workspace_size, worst_case
from actzip.kernels.entropy_table import SPAN
from actzip.kernels.native.bounded import spec
from actzip.kernels.native.entropy import frequency_tensor
from actzip.kernels.native.library import DTYPES, call, threads


def encode(
    x: Tensor, layout: BoundedLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor | None:
    """The payload, or None when plain packing is shorter."""
    values = (x, layout.n, DTYPES[x.dtype], *spec(layout, seed))
    counts = torch.empty(NEGATIVE + 1, dtype=torch.int64)
    packed = call("bounded_count", *values, look_every(layout), counts, threads())
    choice = choose(counts.tolist(), packed, layout)
    if choice is None:
        return None
    how = (frequency_tensor(choice.table.frequencies), int(choice.kind), choice.table.chain)
    levels = torch.empty(layout.chunks, dtype=torch.uint8)
    raw = torch.empty(8 * layout.chunks, dtype=torch.uint8)
    sizes, place = torch.empty(2, -(-layout.n // SPAN), dtype=torch.int64)
    room = workspace_size(layout.n, layout.itemsize)
    workspace = torch.empty(room, dtype=torch.uint8)
    made = (levels, raw, sizes, place, workspace)
    total = call("bounded_squeeze", *values, *how, *made, threads())
    if bool((sizes < 0).any()):
        return None
    first = head(choice, levels, raw, sizes)
    start = first.numel()
    if start + total > worst_case(layout):
        return None
    data = allocate(start + total)
    data[:start] = first
    offsets = sizes.cumsum(0) - sizes
    call("bounded_squeeze_gather", *values, *how, *made, offsets, data[start:], threads())
    return data


def decode(data: Tensor, layout: BoundedLayout, seed: int, out: Tensor) -> None:
    parts = split(data, layout)
    call(
        "bounded_unsqueeze",
        parts.levels,
        parts.raw,
        parts.offsets,
        parts.body,
        frequency_tensor(parts.choice.table.frequencies),
        int(parts.choice.kind),
        parts.choice.table.chain,
        layout.n,
        DTYPES[out.dtype],
        *spec(layout, seed),
        out,
        threads(),
    )
