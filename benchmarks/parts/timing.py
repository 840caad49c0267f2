"""Timing two directions of a code against `copy_`: in turns, in memory that is new several times.

`copy_` alone runs at 3.4 to 5.4 billion float32 a second, depending on where its tensors happen to
lie. So a ratio is taken within one allocation, and its median and range over several are reported.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Act = Callable[[], object]


@dataclass(frozen=True)
class Timed:
    """Seconds, the best of all rounds, in one allocation."""

    copy: float
    encode: float
    decode: float


@dataclass(frozen=True)
class Spread:
    """The same quantity in every allocation."""

    each: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.each)

    @property
    def range(self) -> tuple[float, float]:
        return min(self.each), max(self.each)


def spread(runs: Sequence[Timed], quantity: Callable[[Timed], float]) -> Spread:
    return Spread(tuple(quantity(run) for run in runs))


def in_turns(x: Tensor, encode: Act, decode: Act, rounds: int) -> Timed:
    """Copy, encode and decode one after another, so that all see the same machine."""
    y = torch.empty_like(x)
    acts: tuple[Act, ...] = (lambda: y.copy_(x), encode, decode)
    best = [float("inf")] * len(acts)
    for act in acts:
        act()
    for _ in range(rounds):
        for i, act in enumerate(acts):
            began = time.perf_counter()
            act()
            best[i] = min(best[i], time.perf_counter() - began)
    return Timed(*best)
