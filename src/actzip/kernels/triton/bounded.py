"""Error-bounded codes: launches of device/bounded.py; signatures as in reference/bounded.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import CAP, CHUNK, ROUNDOFF, BoundedLayout, sections
from actzip.kernels.errors import DamagedError
from actzip.kernels.triton import launch
from actzip.kernels.triton.device import bounded as device
from actzip.kernels.triton.group import seed_of

INTS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def encode(
    x: Tensor, layout: BoundedLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor:
    symbols = torch.empty(layout.chunks * CHUNK, dtype=torch.int32, device=x.device)
    headers = torch.empty(layout.blocks, dtype=torch.uint8, device=x.device)
    levels, sizes = torch.empty(2, layout.chunks, dtype=torch.int64, device=x.device)
    quantize_into(x, layout, seed, symbols, headers, levels, sizes)
    ends = sizes.cumsum(0)
    begins = ends - sizes
    table = 8 * layout.chunks
    start = table + layout.blocks
    data = allocate(start + (int(ends[-1]) if layout.chunks else 0))
    words = torch.zeros(data.numel() // 4 + 2, dtype=torch.int32, device=x.device)
    pack_into(x, layout, symbols, headers, begins, words)
    data.copy_(words.view(torch.uint8)[: data.numel()])
    data[:table] = (begins | levels << 56).view(torch.uint8)
    data[table:start] = headers
    return data


def quantize_into(
    x: Tensor, layout: BoundedLayout, seed: int | Tensor, symbols: Tensor, headers: Tensor,
    levels: Tensor, sizes: Tensor, entropy: bool = False,
) -> None:  # fmt: skip
    """Symbols (int32, whole chunks), headers, level and size of each chunk; no host's read.
    entropy: headers say which blocks are raw, and sizes are still those of packing."""
    given = (launch.elements(x), layout.bounds, symbols, headers, levels, sizes, seed_of(seed))
    options: dict[str, Any] = {
        "ROUNDOFF": ROUNDOFF[layout.dtype],
        "CAP": CAP.get(layout.dtype, 2.0**20),
        "WIDTH": layout.width > 0,
        "ENTROPY": entropy,
    }
    shape = (*sizes_of(layout), max(1, layout.width), layout.height)
    launch.run(device.quantize_chunks, layout.chunks, *given, *shape, warps=16, **options,
               **options_of(layout))  # fmt: skip


def pack_into(
    x: Tensor, layout: BoundedLayout, symbols: Tensor, headers: Tensor, begins: Tensor,
    words: Tensor,
) -> None:  # fmt: skip
    """Blocks into `words` (int32, zeros), behind the places of table and headers."""
    start = 8 * layout.chunks + layout.blocks
    given = (launch.elements(x), symbols, headers, begins, words, layout.n, max(1, layout.width))
    launch.run(device.pack_chunks, layout.chunks, *given, layout.height, start, warps=16,
               WIDTH=layout.width > 0)  # fmt: skip


def decode(data: Tensor, layout: BoundedLayout, seed: int, out: Tensor) -> None:
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
    given = (body, table.clone().view(torch.int64), headers, layout.bounds, launch.elements(out))
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
