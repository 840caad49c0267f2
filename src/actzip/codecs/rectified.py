"""Rectified: `Dithered` for the result of a ReLU, with its zeros and its mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from actzip import checks
from actzip.codecs.base import Codec
from actzip.codecs.bounded import Bounded
from actzip.codecs.dithered import Dithered
from actzip.codecs.payload import Allocate, Coded, Payload
from actzip.codecs.registry import register
from actzip.kernels.errors import DamagedError

_CODED = 2  #: the first byte; below, it is that of Bounded


@register
@dataclass(frozen=True)
class Rectified(Codec):
    """|x - decode(encode(x))| <= error for every element that is not negative; zeros come back as
    exact zeros, and nothing else does: `decoded != 0` is exactly `x > 0`. Negative elements, which
    no ReLU gives, may come back as zero.

    `Dithered` with its origin at zero: a positive element's error is uniform within ±error, but
    what would come back below zero comes back next to it, so that elements below the error are a
    little larger on average. In a tensor of fewer than 4096 elements, and with steps so fine that
    an element takes more than 7 bits, codes are stored as `Bounded` with its entropy stage would,
    and the errors are free of bias. table: as of `Dithered`.
    """

    error: float = 1e-2
    table: bytes = field(default=b"", repr=False, compare=False, metadata={"aside": True})

    def __post_init__(self) -> None:
        checks.positive(self, "error", advice="to keep every bit use Keep()")

    @property
    def keeps_zeros(self) -> bool:
        return True

    def finer(self, level: int) -> Codec:
        return Rectified(self.error / 2**level)

    def precision(self) -> tuple[str, float] | None:
        return "error", self.error

    def rate(self, x: Tensor, factors: Sequence[float] = (1.0,)) -> list[float]:
        """Bits that an element of a tensor like x takes when all errors are so many times larger;
        for large tensors."""
        return self._dithered.rate(x, factors)

    def max_error(self, x: Tensor) -> Tensor:
        """The error that was asked for, 0 of zeros; a negative element may be lost."""
        bound = torch.where(x == 0, 0.0, torch.full_like(x, self.error, dtype=torch.float64))
        return torch.where(x < 0, torch.maximum(bound, -x.double()), bound)

    def variance(self, x: Tensor) -> float:
        """Mean squared error of a uniform one within ±error, of elements that are not zero."""
        return float((x != 0).double().mean()) * self.error**2 / 3 if x.numel() else 0.0

    def least_bytes(self, x: Tensor) -> int:
        return self._dithered.least_bytes(x)

    @cached_property
    def _dithered(self) -> Dithered:
        return Dithered(self.error, origin=0.0, table=self.table)

    @cached_property
    def _bounded(self) -> Bounded:
        return Bounded(self.error, entropy=True)

    def __getstate__(self) -> dict[str, Any]:
        return {"error": self.error, "table": self.table}

    def tabled(self, x: Tensor) -> Rectified:
        """The same with a table for tensors like x; as it is where that would not be used."""
        return Rectified(self.error, self._dithered.tabled(x).table)

    def _view(self, x: Tensor) -> Tensor | None:
        return self._dithered._view(x)

    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Coded:
        found = self._dithered._coded(x, seed, allocate)
        return self._bounded._encode(x, seed, allocate) if found is None else found

    def _decode(self, payload: Payload, out: Tensor) -> None:
        data = payload.data
        first, *_ = payload.known or (int(data[0]) if data.numel() else _CODED + 1,)
        if first == _CODED and out.numel():  # of nothing there are no codes
            self._dithered._decode(payload, out)
            out.clamp_(min=0)
        elif first < _CODED:
            self._bounded._decode(payload, out)
        else:
            raise DamagedError("the first byte does not say how the codes are stored")
