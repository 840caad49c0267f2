"""Dithered codes: binding to csrc/dithered/dithered.cpp; the twin of reference/dithered.py."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from actzip.kernels.dithered_layout import EXTRA_ROOM, DitheredLayout, end_of, look_every
from actzip.kernels.dithered_tables import Given
from actzip.kernels.dithered_tables import given as given_by
from actzip.kernels.entropy_table import CHAINS, SPAN, as_tensor
from actzip.kernels.native.library import DTYPES, call, signed, threads

#: Bytes of one thread: Scratch in csrc/dithered/encode.hpp, with marks of 16 contexts.
_ENCODING = 12 * SPAN + CHAINS[-1] * (EXTRA_ROOM + SPAN * 12 // 8) + 16384
#: And of Span and Tables in decode.hpp.
_DECODING, _TABLES = 5 * SPAN + 8192, 16 * (16384 + 2048)
_CONTEXTS = 16384
_MOST_STORED = 1 + 2 + 16 + 16 * 258
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


def _state(layout: DitheredLayout) -> Tensor:
    return _bytes(_CONTEXTS + 9 * layout.chunks + 24 * layout.spans + 512)


def _bytes(count: int) -> Tensor:
    return torch.empty(count, dtype=torch.uint8)


def choose_for(x: Tensor, layout: DitheredLayout, seed: int) -> Given | None:
    """What `encode` takes for x; None when steps are too fine for this format."""
    values = (x, layout.n, DTYPES[x.dtype], *_spec(layout, seed))
    many = min(threads(), layout.spans)
    state, scratch = _state(layout), _bytes(_grids(layout) + _ENCODING * many)
    if not call("dithered_count", *values, look_every(layout), state, scratch, many):
        return None
    table = _bytes(_MOST_STORED)
    size = call("dithered_chosen", layout.n, state, table)
    return given_by(bytes(table[:size].tolist()))


def encode_within(
    x: Tensor, layout: DitheredLayout, seed: int, data: Tensor, given: Given, first: int
) -> Tensor:
    data[:1] = first
    found = encode(x, layout, seed, lambda nbytes: data[1 : 1 + nbytes], given)
    assert found is not None, "given tables always do"
    return torch.tensor(1 + found.numel())


def encode(
    x: Tensor,
    layout: DitheredLayout,
    seed: int,
    allocate: Callable[[int], Tensor],
    given: Given | None = None,
) -> Tensor | None:
    """The payload, or None when steps are too fine for this format."""
    values = (x, layout.n, DTYPES[x.dtype], *_spec(layout, seed))
    many = min(threads(), layout.spans)
    state, scratch = _state(layout), _bytes(_grids(layout) + _ENCODING * many)
    if given is None:
        expected = call("dithered_count", *values, look_every(layout), state, scratch, many)
    else:
        call("dithered_given", as_tensor(given.stored(), x.device), layout.n, state)
        expected = 1 + layout.n * layout.itemsize // 4
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


def decode(
    data: Tensor, layout: DitheredLayout, seed: int, out: Tensor, known: Given | None = None
) -> None:
    if known is not None:
        data = data[: end_of(data, layout)]
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
