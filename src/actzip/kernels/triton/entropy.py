"""The entropy stage: launches of device/entropy.py; signatures as in reference/entropy.py.

Three launches for an encode, count included, and one for a decode. The table is made by the host.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from actzip.kernels.entropy_table import (
    SPAN,
    STATES,
    SYMBOLS,
    Table,
    as_tensor,
    load_offsets,
    store_sizes,
)
from actzip.kernels.errors import DamagedError
from actzip.kernels.triton import launch
from actzip.kernels.triton.device import entropy as device


def count(codes: Tensor) -> list[int]:
    """How often each of the 256 codes occurs."""
    counts = torch.zeros(SYMBOLS, dtype=torch.int64, device=codes.device)
    count_into(codes, counts)
    found: list[int] = counts.tolist()
    return found


def count_into(codes: Tensor, counts: Tensor) -> None:
    """Adds to `counts` (256 of int64), without the host's read."""
    programs = -(-codes.numel() // launch.TILE)
    launch.run(device.count_codes, programs, codes, counts, codes.numel(), SIZE=launch.TILE)


def encode(codes: Tensor, table: Table, allocate: Callable[[int], Tensor]) -> Tensor:
    """Bytes of the uint8 codes: table, a uint32 per span with its size, spans."""
    n, head = codes.numel(), table.stored()
    spans = -(-n // SPAN)
    room = torch.empty(spans * device.ROOM.value, dtype=torch.int16, device=codes.device)
    chains = -(-spans // table.chain)
    states = torch.empty(chains * STATES, dtype=torch.int32, device=codes.device)
    sizes = torch.empty(spans, dtype=torch.int64, device=codes.device)
    code_into(codes, table, room, states, sizes)
    ends = sizes.cumsum(0)
    start = len(head) + 4 * spans
    data = allocate(start + (int(ends[-1]) if spans else 0))
    data[: len(head)] = as_tensor(head, data.device)
    data[len(head) : start] = store_sizes(sizes)
    gather_into(room, states, sizes, ends - sizes, table, data[start:])
    return data


def code_into(codes: Tensor, table: Table, room: Tensor, states: Tensor, sizes: Tensor) -> None:
    """The words of each span at the end of its room, and how many bytes it takes."""
    frequency, start, _ = tables_of(table, codes.device)
    given = (codes, frequency, start, room, states, sizes, codes.numel(), sizes.numel())
    chains = -(-sizes.numel() // table.chain)
    launch.run(device.encode_chains, chains, *given, CHAIN=table.chain, warps=1)


def gather_into(
    room: Tensor, states: Tensor, sizes: Tensor, begins: Tensor, table: Table, data: Tensor
) -> None:
    given = (room.view(torch.uint8), states, sizes, begins, data, 2 * device.ROOM.value)
    size = launch.TILE
    launch.run(device.gather_spans, sizes.numel(), *given, CHAIN=table.chain, SIZE=size)


def decode(data: Tensor, out: Tensor) -> None:
    table, size = Table.load(data)
    start = size + 4 * -(-out.numel() // SPAN)
    if data.numel() < start:
        raise DamagedError(f"entropy_decode: {data.numel()} bytes are too few")
    body = data[start:]
    begins = load_offsets(data[size:start], body.numel())
    ends = torch.cat([begins[1:], begins.new_full((1,), body.numel())])
    damaged = torch.zeros(1, dtype=torch.int32, device=data.device)
    decode_from(body, begins, ends, table, out, damaged)
    if int(damaged):
        raise DamagedError("entropy_decode: the stored bytes are damaged")


def decode_from(
    body: Tensor, begins: Tensor, ends: Tensor, table: Table, out: Tensor, damaged: Tensor
) -> None:
    """Spans that begin and end where it is said; `damaged` (int32) becomes 1 for bytes that no
    encoder writes. No host's read."""
    spans, tables = begins.numel(), tables_of(table, body.device)
    given = (body, begins, ends, *tables, out, damaged, out.numel(), spans, body.numel())
    launch.run(device.decode_chains, -(-spans // table.chain), *given, CHAIN=table.chain, warps=1)


def tables_of(table: Table, on: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Frequencies, where each symbol's slots start, and the symbol of each slot."""
    frequency = torch.tensor(table.frequencies, dtype=torch.int32)
    start = frequency.cumsum(0, dtype=torch.int32) - frequency
    symbol = torch.repeat_interleave(torch.arange(SYMBOLS, dtype=torch.int32), frequency)
    return frequency.to(on), start.to(on), symbol.to(on)
