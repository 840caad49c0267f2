"""BitMask: one bit per element."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from actzip import kernels
from actzip.codecs import unsettled
from actzip.codecs.base import Codec
from actzip.codecs.payload import Allocate, Coded, Payload
from actzip.codecs.registry import register


@register
@dataclass(frozen=True)
class BitMask(Codec):
    """One bit per element.

    - A bool tensor comes back exactly.
    - A floating tensor comes back as 1 where not (x <= 0), else 0: what ReLU's backward asks.
      NaN counts as on.
    - With `on=c`, a floating tensor whose elements are all +0 or c (a dropout's noise) comes back
      exactly; encoding one that has a third value is a ValueError.
    """

    on: float | None = None

    def __post_init__(self) -> None:
        if self.on is not None and not (math.isfinite(self.on) and self.on != 0):
            raise ValueError(f"BitMask(on=...) is a finite number other than 0, got {self.on}")

    def check(self, x: Tensor) -> None:
        if x.dtype != torch.bool:
            super().check(x)

    def least_bytes(self, x: Tensor) -> int:
        return (x.numel() + 7) // 8

    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Tensor | Coded:
        data = allocate((x.numel() + 7) // 8, x.device)
        others = kernels.of(x, "mask").encode(x.view(-1), self.on, data)
        if isinstance(others, Tensor) and not unsettled.reading_is_free(x.device):
            return Coded(data, word=others)
        if int(others):
            raise ValueError(
                f"{self!r} stores tensors of exactly 0 and {self.on} only, got another value in a "
                f"{x.dtype} tensor of shape {tuple(x.shape)}; store it with Keep()"
            )
        return data

    def _decode(self, payload: Payload, out: Tensor) -> None:
        kernels.of(out, "mask").decode(payload.data, self.on, out.view(-1))
