"""Dithered codes: binding to csrc/dithered/dithered.cpp; the twin of reference/dithered.py."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from actzip.kernels.dithered_contexts import BINS, COUNTED, Choice, Contexts, choose
from actzip.kernels.dithered_layout import (
    EXTRA_ROOM,
    DitheredLayout,
    head,
    look_every,
    split,
    too_fine,
)
from actzip.kernels.entropy_table import CHAINS, SPAN, SYMBOLS
from actzip.kernels.native.library import DTYPES, call, signed, threads

_COUNTS = BINS * COUNTED + SYMBOLS
#: Bytes of one thread: Scratch in csrc/dithered/encode.hpp.
_SCRATCH = 7 * SPAN + 2 * 64 + CHAINS[-1] * (EXTRA_ROOM + SPAN * 12 // 8) + 4096


def _spec(layout: DitheredLayout, seed: int) -> tuple[Tensor | int, ...]:
    bounds, sides = layout.bounds, layout.sides
    more = (bounds,) * 3 if sides is None else (sides.bounds, sides.origin, sides.above)
    return (bounds, *more, bounds.numel(), layout.inner, signed(seed), int(sides is not None))


def _how(contexts: Contexts, chain: int) -> tuple[Tensor | int, ...]:
    each = contexts.each
    return (
        torch.tensor(contexts.of_bin(), dtype=torch.uint8),
        torch.tensor([c.group for c in each], dtype=torch.uint8),
        torch.tensor([c.frequencies() for c in each], dtype=torch.int16),
        len(each),
        chain,
    )


def encode(
    x: Tensor, layout: DitheredLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor | None:
    """The payload, or None when steps are too fine for this format."""
    values = (x, layout.n, DTYPES[x.dtype], *_spec(layout, seed))
    choice = _look(values, layout)
    if too_fine(choice, layout):
        return None
    chains = -(-layout.spans // choice.chain)
    sizes = torch.empty(chains, 2, dtype=torch.int64)
    levels = torch.empty(layout.chunks, dtype=torch.uint8)
    raw = torch.empty(8 * layout.chunks, dtype=torch.uint8)
    place = torch.empty(chains, dtype=torch.int64)
    workspace = torch.empty(_workspace(choice, chains), dtype=torch.uint8)
    scratch = torch.empty(_SCRATCH * min(threads(), chains), dtype=torch.uint8)
    made = (*_how(choice.contexts, choice.chain), levels, raw, sizes, place, workspace, scratch)
    total = call("dithered_encode", *values, *made, min(threads(), chains))
    if bool((sizes[:, 0] < 0).any()):
        return None
    first = head(choice, levels, raw, sizes[:, 0], sizes[:, 1])
    start = first.numel()
    data = allocate(start + total)
    data[:start] = first
    offsets = sizes[:, 0].cumsum(0) - sizes[:, 0]
    call("dithered_gather", *values, *made, offsets, data[start:], min(threads(), chains))
    return data


def decode(data: Tensor, layout: DitheredLayout, seed: int, out: Tensor) -> None:
    parts = split(data, layout)
    call(
        "dithered_decode",
        parts.levels,
        parts.raw,
        parts.offsets,
        parts.coded,
        parts.body,
        *_how(parts.contexts, parts.chain),
        layout.n,
        DTYPES[out.dtype],
        *_spec(layout, seed),
        out,
        threads(),
    )


def _look(values: tuple[Tensor | int, ...], layout: DitheredLayout) -> Choice:
    counts = torch.zeros(threads(), _COUNTS, dtype=torch.int32)
    call("dithered_count", *values, look_every(layout), counts, threads())
    found = counts.sum(0).numpy()
    return choose(found[:-SYMBOLS].reshape(BINS, COUNTED), found[-SYMBOLS:], layout.n)


def _workspace(choice: Choice, chains: int) -> int:
    """Bytes in which finished chains wait until all sizes are known; one that finds no room is
    encoded twice, nothing else changes. 30 MB: above 32, malloc takes fresh pages each time."""
    return min(int(choice.bits / 8 * 1.1) + 1024 * chains, 30 << 20)
