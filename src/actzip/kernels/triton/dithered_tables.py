"""What Dithered's kernels are given of tables and of elements by their contexts, on the device."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from actzip.kernels.dithered_layout import DitheredLayout
from actzip.kernels.dithered_tables import MOST_CONTEXTS, Given
from actzip.kernels.entropy_table import SYMBOLS
from actzip.kernels.triton.device import dithered as device

_ROOM: int = device.ROOM.value


class Tables(NamedTuple):
    """What contexts are; all int32, but for the last two."""

    many: int
    context: Tensor  #: of each bin of v
    info: Tensor  #: group, base and its powers, for 16 contexts
    frequency: Tensor  #: of each symbol
    start: Tensor  #: of each symbol's slots
    symbol: Tensor  #: of each slot, a byte
    stored: Tensor  #: the contexts as a payload has them

    @staticmethod
    def of(given: Given, on: torch.device) -> Tables:
        """Kept with what they are made of, in one copy to the device."""
        kept: dict[torch.device, Tables] = given.__dict__.setdefault("_tables", {})
        if on not in kept:
            kept[on] = _tables(given, on)
        return kept[on]


def _tables(given: Given, on: torch.device) -> Tables:
    each = given.contexts.each
    info = [[c.group, c.base, *(c.base ** min(j, c.group - 1) for j in range(8))] for c in each]
    info += [[1] * 10] * (MOST_CONTEXTS - len(each))
    frequency = torch.tensor([c.frequencies() for c in each], dtype=torch.int32)
    start = frequency.cumsum(1, dtype=torch.int32) - frequency
    every = torch.arange(SYMBOLS, dtype=torch.uint8).repeat(len(each))
    symbol = torch.repeat_interleave(every, frequency.view(-1).long())
    bins = torch.tensor(given.contexts.of_bin(), dtype=torch.int32)
    stored = torch.frombuffer(bytearray(given.contexts.stored()), dtype=torch.uint8)
    words = (bins, torch.tensor(info, dtype=torch.int32), frequency, start)
    whole = torch.cat([*(w.view(-1).view(torch.uint8) for w in words), symbol, stored]).to(on)
    cut = whole.split([*(4 * w.numel() for w in words), symbol.numel(), stored.numel()])
    bins, infos, frequency, start = (c.view(torch.int32) for c in cut[:4])
    return Tables(len(each), bins, infos, frequency, start, cut[4], cut[5])


class Parts(NamedTuple):
    """Elements by contexts."""

    counts: Tensor  #: elements of each context in each span
    places: Tensor  #: of each element
    sums: Tensor  #: symbols, context by context

    @staticmethod
    def of(layout: DitheredLayout, on: torch.device, zeros: bool = False) -> Parts:
        def room(count: int) -> Tensor:
            make = torch.zeros if zeros else torch.empty
            return make(count, dtype=torch.int32, device=on)

        return Parts(room(MOST_CONTEXTS * layout.spans), room(layout.n), room(_ROOM * layout.spans))


def sizes(layout: DitheredLayout) -> tuple[int, int, int]:
    return layout.n, layout.inner, layout.bounds.numel()


def options(layout: DitheredLayout) -> dict[str, Any]:
    return {
        "SIDES": layout.sides is not None,
        "LARGE": layout.n >= 1 << 31,
        "LONG": layout.n >= 1 << 33,
    }
