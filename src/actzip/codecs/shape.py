"""Shape: nothing but shape, strides and dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from actzip.codecs.base import Codec
from actzip.codecs.payload import Allocate, Payload, PayloadError
from actzip.codecs.registry import register


@register
@dataclass(frozen=True)
class Shape(Codec):
    """Shape, strides, dtype and device come back; the values are whatever the memory holds.

    For tensors of which the backward reads the geometry only, such as a max-pool's input.
    """

    decode_is_defined: ClassVar[bool] = False

    def check(self, x: Tensor) -> None:
        """Any tensor will do."""

    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Tensor:
        return allocate(0, x.device)

    def _decode(self, payload: Payload, out: Tensor) -> None:
        """Nothing is written: untouched pages of a fresh tensor cost no memory."""
        if payload.data.numel():
            raise PayloadError(f"Shape holds no bytes, got {payload.data.numel()}")
