"""Timing two directions of a code against `copy_`, in turns, best of many rounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Act = Callable[[], object]


@dataclass(frozen=True)
class Timed:
    """Seconds, the best of all rounds."""

    copy: float
    encode: float
    decode: float

    @property
    def ratios(self) -> tuple[float, float]:
        """Speed of encode and decode; `copy_` of the same tensor is 1."""
        return self.copy / self.encode, self.copy / self.decode


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
