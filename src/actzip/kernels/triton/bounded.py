"""Error-bounded codes: launches of device/bounded.py; signatures as in reference/bounded.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import (
    CAP,
    CHUNK,
    ROUNDOFF,
    SPARE,
    BoundedLayout,
    sections,
    worst_case,
)
from actzip.kernels.errors import DamagedError
from actzip.kernels.triton import launch
from actzip.kernels.triton.device import bounded as device
from actzip.kernels.triton.group import seed_of

INTS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def encode(
    x: Tensor, layout: BoundedLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor:
    if not layout.n:
        return allocate(0)
    room = torch.empty(worst_case(layout) + SPARE, dtype=torch.uint8, device=x.device)
    size = int(encode_within(x, layout, seed, room))
    return allocate(size).copy_(room[:size])


def encode_within(x: Tensor, layout: BoundedLayout, seed: int | Tensor, data: Tensor) -> Tensor:
    """Three launches: symbols and headers, places, blocks. `data` begins at a multiple of 16."""
    on, table = x.device, 8 * layout.chunks
    start = table + layout.blocks
    symbols = torch.empty(layout.chunks * CHUNK, dtype=torch.int32, device=on)
    levels, sizes, begins = torch.empty(3, layout.chunks, dtype=torch.int64, device=on)
    total = torch.empty(1, dtype=torch.int64, device=on)
    words = data[: data.numel() // 4 * 4].view(torch.int32)
    quantize_into(x, layout, seed, symbols, data[table:start], levels, sizes, words, start)
    place_into(levels, sizes, begins, data[:table].view(torch.int64), total, start)
    pack_into(x, layout, symbols, data[table:start], begins, words)
    return total


def quantize_into(
    x: Tensor, layout: BoundedLayout, seed: int | Tensor, symbols: Tensor, headers: Tensor,
    levels: Tensor, sizes: Tensor, words: Tensor | None = None, start: int = 0,
) -> None:  # fmt: skip
    """Symbols (int32, whole chunks), headers, level and size of each chunk; no host's read.
    `words` become zero behind `start` bytes, as far as blocks may reach; without them it is for the
    entropy stage: headers say which blocks are raw, and sizes are still those of packing."""
    cleared = symbols if words is None else words
    given = (launch.elements(x), layout.bounds, symbols, headers, levels, sizes, seed_of(seed))
    options: dict[str, Any] = {
        "ROUNDOFF": ROUNDOFF[layout.dtype],
        "CAP": CAP.get(layout.dtype, 2.0**20),
        "WIDTH": layout.width > 0,
        "ENTROPY": words is None,
    }
    shape = (*sizes_of(layout), max(1, layout.width), layout.height, start)
    launch.run(device.quantize_chunks, layout.chunks, *given, cleared, *shape, cleared.numel(),
               warps=16, **options, **options_of(layout))  # fmt: skip


def place_into(
    levels: Tensor, sizes: Tensor, begins: Tensor, table: Tensor, total: Tensor, start: int
) -> None:
    """Where each chunk's blocks begin, and the table that says so (int64); in `total` how many
    bytes there are, with `start` before them."""
    given = (levels, sizes, begins, table, total, start, sizes.numel())
    launch.run(device.place_chunks, 1, *given, SIZE=launch.TILE)


def pack_into(
    x: Tensor, layout: BoundedLayout, symbols: Tensor, headers: Tensor, begins: Tensor,
    words: Tensor,
) -> None:  # fmt: skip
    """Blocks into `words` (int32, zeros), behind the places of table and headers."""
    start = 8 * layout.chunks + layout.blocks
    given = (launch.elements(x), symbols, headers, begins, words, layout.n, max(1, layout.width))
    launch.run(device.pack_chunks, layout.chunks, *given, layout.height, start, warps=16,
               WIDTH=layout.width > 0)  # fmt: skip


def decode(
    data: Tensor, layout: BoundedLayout, seed: int, out: Tensor, trusted: bool = False
) -> None:
    if sections(layout, data) is None:
        raise DamagedError(
            f"bounded_decode: {data.numel()} bytes are too few for {layout.n} values"
        )
    decode_from(data, layout, seed, out)


def decode_from(data: Tensor, layout: BoundedLayout, seed: int | Tensor, out: Tensor) -> None:
    """`decode` of bytes that hold at least table and headers; `seed` may be on the device."""
    parts = sections(layout, data)
    assert parts is not None
    table, headers, body = parts
    given = (
        body,
        launch.aligned(table).view(torch.int64),
        headers,
        layout.bounds,
        launch.elements(out),
    )
    raw = out.view(INTS[out.element_size()])
    room = layout.chunks * CHUNK if layout.width else 0
    symbols = torch.empty(room, dtype=torch.int32, device=out.device)
    shape = (body.numel(), max(1, layout.width), layout.height)
    launch.run(device.decode_chunks, layout.chunks, *given, raw, symbols, seed_of(seed),
               *sizes_of(layout), *shape, warps=2, WIDTH=layout.width > 0,
               **options_of(layout))  # fmt: skip


def sizes_of(layout: BoundedLayout) -> tuple[int, int, int]:
    return layout.n, layout.inner, layout.bounds.numel()


def options_of(layout: BoundedLayout) -> dict[str, Any]:
    return {
        "DITHERED": layout.dither,
        "LARGE": layout.n >= 1 << 31,
        "LONG": layout.n >= 1 << 33,
    }
