"""Error-bounded codes: binding to csrc/bounded/bounded.cpp; the twin of reference/bounded.py."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import BoundedLayout, sections, workspace_size
from actzip.kernels.errors import DamagedError
from actzip.kernels.native.library import DTYPES, call, signed, threads


def spec(layout: BoundedLayout, seed: int) -> tuple[Tensor | int, ...]:
    channels = layout.bounds.numel()
    maps = (layout.width, layout.height)
    return (layout.bounds, channels, layout.inner, signed(seed), layout.dither, *maps)


def encode(
    x: Tensor, layout: BoundedLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor:
    values = (x, layout.n, DTYPES[x.dtype], *spec(layout, seed))
    headers = torch.empty(layout.blocks, dtype=torch.uint8)
    sizes = torch.empty(layout.chunks, dtype=torch.int64)
    place = torch.empty(layout.chunks, dtype=torch.int64)
    room = workspace_size(layout.n, layout.itemsize)
    workspace = torch.empty(room, dtype=torch.uint8)
    total = call("bounded_encode", *values, headers, sizes, place, workspace, threads())
    table = 8 * layout.chunks
    data = allocate(table + layout.blocks + total)
    start = table + layout.blocks
    call(
        "bounded_gather",
        *values,
        headers,
        sizes,
        place,
        workspace,
        data[:table],
        data[start:],
        threads(),
    )
    data[table:start] = headers
    return data


def encode_within(x: Tensor, layout: BoundedLayout, seed: int, data: Tensor) -> Tensor:
    return torch.tensor(encode(x, layout, seed, lambda nbytes: data[:nbytes]).numel())


def decode(
    data: Tensor, layout: BoundedLayout, seed: int, out: Tensor, trusted: bool = False
) -> None:
    parts = sections(layout, data)
    if parts is None:
        raise DamagedError(
            f"bounded_decode: {data.numel()} bytes are too few for {layout.n} values"
        )
    table, headers, blocks = parts
    call(
        "bounded_decode",
        table,
        headers,
        blocks,
        layout.n,
        DTYPES[out.dtype],
        *spec(layout, seed),
        out,
        threads(),
    )
