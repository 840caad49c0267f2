"""Dithered codes: binding to csrc/dithered/dithered.cpp; the twin of reference/dithered.py."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from actzip.kernels.dithered_layout import EXTRA_ROOM, DitheredLayout, look_every
from actzip.kernels.entropy_table import CHAINS, SPAN
from actzip.kernels.native.library import DTYPES, call, signed, threads

#: Bytes of one thread: Scratch in csrc/dithered/encode.hpp, with marks of 16 contexts.
_ENCODING = 12 * SPAN + CHAINS[-1] * (EXTRA_ROOM + SPAN * 12 // 8) + 16384
#: And of Span and Tables in decode.hpp.
_DECODING, _TABLES = 5 * SPAN + 8192, 16 * (16384 + 2048)
_CONTEXTS = 16384
_TABLED = 8192  #: channels of which there is a table when they are innermost


def _spec(layout: DitheredLayout, seed: int) -> tuple[Tensor | int, ...]:
    """Everything but the values."""
    sides = int(layout.sides is not None)
    return (layout.grid(), layout.bounds.numel(), layout.inner, signed(seed), sides)


def _grids(layout: DitheredLayout) -> int:
    """Bytes of the table of grids."""
    channels = layout.bounds.numel()
    if layout.inner > 1 or not 1 < channels <= _TABLED:
        return 1024
    return 1024 + 16 * (channels + 64) * layout.real.itemsize


def _bytes(count: int) -> Tensor:
    return torch.empty(count, dtype=torch.uint8)


def encode(
    x: Tensor, layout: DitheredLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor | None:
    """The payload, or None when steps are too fine for this format."""
    values = (x, layout.n, DTYPES[x.dtype], *_spec(layout, seed))
    many = min(threads(), layout.spans)
    state = _bytes(_CONTEXTS + 9 * layout.chunks + 24 * layout.spans + 512)
    scratch = _bytes(_grids(layout) + _ENCODING * many)
    expected = call("dithered_count", *values, look_every(layout), state, scratch, many)
    if not expected:
        return None
    # In which finished chains wait until all sizes are known; one that finds no room is encoded
    # twice, nothing else changes. 30 MB: above 32, malloc takes fresh pages each time.
    workspace = _bytes(min(expected * 11 // 10 + 1024 * layout.spans, 30 << 20))
    total = call("dithered_encode", *values, state, workspace, scratch, many)
    if not total:
        return None
    data = allocate(total)
    call("dithered_gather", *values, state, workspace, scratch, data, many)
    return data


def decode(data: Tensor, layout: DitheredLayout, seed: int, out: Tensor) -> None:
    many = max(1, min(threads(), layout.spans))
    room = _grids(layout) + _DECODING * many + _TABLES + 9 * layout.chunks + 512
    call(
        "dithered_decode",
        data,
        layout.n,
        DTYPES[out.dtype],
        *_spec(layout, seed),
        out,
        torch.empty(layout.spans + 1, dtype=torch.int64),
        _bytes(room),
        many,
    )
