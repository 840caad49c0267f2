"""The entropy stage: binding to csrc/entropy/entropy.cpp; signatures as in reference/entropy.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import workspace_size
from actzip.kernels.entropy_table import (
    SPAN,
    SYMBOLS,
    Table,
    as_tensor,
    load_offsets,
    store_sizes,
)
from actzip.kernels.errors import DamagedError
from actzip.kernels.native.library import call, threads


def frequency_tensor(frequencies: Sequence[int]) -> Tensor:
    return torch.tensor(frequencies, dtype=torch.int16)


def count(codes: Tensor) -> list[int]:
    """How often each of the 256 codes occurs."""
    counts = torch.empty(SYMBOLS, dtype=torch.int64)
    call("entropy_count", codes, codes.numel(), counts, threads())
    found: list[int] = counts.tolist()
    return found


def encode(codes: Tensor, table: Table, allocate: Callable[[int], Tensor]) -> Tensor:
    """Bytes of the uint8 codes: table, a uint32 per span with its size, spans."""
    n, head = codes.numel(), table.stored()
    given = (codes, n, frequency_tensor(table.frequencies), table.chain)
    sizes, place = torch.empty(2, -(-n // SPAN), dtype=torch.int64)
    workspace = torch.empty(workspace_size(n, 4), dtype=torch.uint8)
    total = call("entropy_encode", *given, sizes, place, workspace, threads())
    start = len(head) + 4 * sizes.numel()
    data = allocate(start + total)
    data[: len(head)] = as_tensor(head, data.device)
    data[len(head) : start] = store_sizes(sizes)
    offsets = sizes.cumsum(0) - sizes
    call("entropy_gather", *given, sizes, place, workspace, offsets, data[start:], threads())
    return data


def decode(data: Tensor, out: Tensor) -> None:
    table, size = Table.load(data)
    start = size + 4 * -(-out.numel() // SPAN)
    if data.numel() < start:
        raise DamagedError(f"entropy_decode: {data.numel()} bytes are too few")
    body = data[start:]
    call(
        "entropy_decode",
        load_offsets(data[size:start], body.numel()),
        body,
        frequency_tensor(table.frequencies),
        table.chain,
        out.numel(),
        out,
        threads(),
    )
