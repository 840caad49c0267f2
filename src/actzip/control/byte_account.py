"""Bytes of a pass: what codes take, what is stored beside them, and what tensors hold besides."""

from __future__ import annotations

import math
from dataclasses import dataclass

_EQUAL = 0.05  #: how far apart the bytes of two passes are that are taken for equal
_FREE = 0.02  #: of a budget stays unused: no two passes are quite equal


@dataclass
class ByteAccount:
    """Of the last pass that was counted.

    What is stored is known for a whole pass only. `rest` is that less what the codes were expected
    to take: masks, indices, what is kept exactly, and how far the expectation was off.
    """

    raw: float = 0.0  #: what PyTorch would have kept
    expected: float = 0.0  #: what the codes of the pass that runs are expected to take
    exact: float = 0.0  #: what their tensors would take as they are
    rest: float = 0.0
    stored: float = 0.0
    besides: float | None = None  #: weights, gradients and all else at the peak; None: not measured
    measured_raw: float = 0.0  #: `raw` of the pass that it was measured in

    def begin(self) -> None:
        self.expected = self.exact = 0.0

    def expect(self, coded: float, plain: float) -> None:
        """A tensor of the pass that runs."""
        self.expected += coded
        self.exact += plain

    def close(self, raw: int, stored: int, counted: bool) -> None:
        """The pass is over; `counted`: `expect` was told of its codes."""
        self.raw, self.stored = float(raw), float(stored)
        if counted and raw:
            self.rest = stored - self.expected

    def peaked(self, peak: int) -> None:
        """Tensors held so many bytes at the peak of the last pass.

        Payloads lie in slabs that are seldom full: of equal passes the one with the most besides
        counts, else a part of a slab that happened to be free would be given away twice.
        """
        equal = self.measured_raw > 0 and abs(self.raw / self.measured_raw - 1) < _EQUAL
        known = self.besides if equal and self.besides is not None else -math.inf
        self.besides = max(known, peak - self.stored)
        self.measured_raw = self.raw

    def for_ratio(self, ratio: float) -> float:
        """Bytes that the codes may take."""
        return self.raw / ratio - self.rest

    def for_budget(self, budget: int) -> float | None:
        """The same; None before a peak was measured."""
        if self.besides is None:
            return None
        return budget * (1 - _FREE) - self.besides - self.rest

    def peak(self, coded: float) -> float:
        """What is to be expected when the codes take so many bytes."""
        return coded + self.rest + (self.besides or 0.0)

    def fits_exactly(self, budget: int) -> bool:
        """Whether no tensor needs a code."""
        return self.besides is not None and self.peak(self.exact) <= budget * (1 - _FREE)
