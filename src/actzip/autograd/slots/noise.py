"""Dropout on a CPU saves its mask as a floating factor: 0 or one scale, in the slot of a `mul`."""

from __future__ import annotations

import math
from collections import Counter

import torch
from torch import Tensor

from actzip import planning
from actzip.codecs import unsettled

_GLANCE = 64


def noise(x: Tensor) -> float | None:
    """The scale of what looks like a factor of +0 and one positive value; None for all else.

    `F.dropout` on a CPU is `x * noise`, so (`MulBackward0`, `other`) holds one bit per element in
    a whole float; alpha dropout, SDPA's math path and the dropout between LSTM layers do the same.
    Only the values can tell, so ask for factors without a producer. This is a glance at the first
    elements; `BitMask(on=scale)` checks every one while it encodes and refuses a third value.
    """
    if not x.is_floating_point() or x.numel() == 0:
        return None
    if planning.is_fake(x):
        return 1.0 if planning.is_noise(x) else None
    head = _head(x)
    # all dropped so far: ask the rest; of nothing but zeros any scale is right
    scale = float(head.amax()) or float(x.amax()) or 1.0
    # signbit: a factor of -0.0 gives another zero than +0.0 does. NaN equals nothing.
    binary = (((head == 0) | (head == scale)) & ~torch.signbit(head)).all()
    return scale if binary and scale > 0 and math.isfinite(scale) else None


class Scales:
    """The scales of dropouts, by site.

    Where the host would have to wait for the values, it looks at a site once in `AGAIN` passes.
    In between `BitMask(on=scale)` finds out by itself that a tensor is no such factor any more, and
    keeps it exactly (codecs/unsettled.py).
    """

    AGAIN = 100

    def __init__(self) -> None:
        self._known: dict[str, float | None] = {}
        self._asked: Counter[str] = Counter()

    def of(self, site: str, x: Tensor) -> float | None:
        """The scale of x, or what it was when it was looked at."""
        if unsettled.reading_is_free(x.device):
            return noise(x)
        if self._asked[site] % self.AGAIN == 0:
            self._known[site] = noise(x)
        self._asked[site] += 1
        return self._known[site]


def _head(x: Tensor) -> Tensor:
    """A small view of x's beginning, whatever its strides."""
    for dim in range(x.dim()):
        x = x.narrow(dim, 0, min(x.size(dim), _GLANCE if dim == x.dim() - 1 else 1))
    return x
