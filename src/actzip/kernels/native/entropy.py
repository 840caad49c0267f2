"""The entropy stage: binding to csrc/entropy.cpp; signatures as in reference/entropy.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from actzip.kernels import entropy_table
from actzip.kernels.bounded_layout import workspace_size
from actzip.kernels.entropy_table import SPAN, SYMBOLS
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


def encode(codes: Tensor, frequencies: Sequence[int], allocate: Callable[[int], Tensor]) -> Tensor:
    """Bytes of the uint8 codes: table, a uint64 offset per span, spans."""
    n, table = codes.numel(), entropy_table.store(frequencies)
    spans = -(-n // SPAN)
    given = (codes, n, frequency_tensor(frequencies))
    sizes, place = torch.empty(2, spans, dtype=torch.int64)
    room = workspace_size(n, 4)
    workspace = torch.empty(room, dtype=torch.uint8)
    total = call("entropy_encode", *given, sizes, place, workspace, room, threads())
    start = len(table) + 8 * spans
    data = allocate(start + total)
    data[: len(table)] = entropy_table.as_tensor(table, data.device)
    ready = (sizes, place, workspace, data[len(table) : start], data[start:])
    call("entropy_gather", *given, *ready, threads())
    return data


def decode(data: Tensor, out: Tensor) -> None:
    frequencies, size = entropy_table.load(data)
    start = size + 8 * -(-out.numel() // SPAN)
    if data.numel() < start:
        raise DamagedError(f"entropy_decode: {data.numel()} bytes are too few")
    body = data[start:]
    call(
        "entropy_decode",
        data[size:start],
        body,
        body.numel(),
        frequency_tensor(frequencies),
        out.numel(),
        out,
        threads(),
    )
