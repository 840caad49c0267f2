"""Keep: every byte, as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from actzip.codecs.base import Codec
from actzip.codecs.payload import Allocate, Payload, PayloadError
from actzip.codecs.registry import register


@register
@dataclass(frozen=True)
class Keep(Codec):
    """Any dense tensor comes back bit for bit; it costs its own size."""

    exact: ClassVar[bool] = True

    def check(self, x: Tensor) -> None:
        """Any tensor will do."""

    def least_bytes(self, x: Tensor) -> int:
        return x.numel() * x.element_size()

    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Tensor:
        data = allocate(x.numel() * x.element_size(), x.device)
        data.copy_(_bytes(x))
        return data

    def _decode(self, payload: Payload, out: Tensor) -> None:
        want = out.numel() * out.element_size()
        if payload.data.numel() != want:
            raise PayloadError(f"Keep holds {payload.data.numel()} bytes, the tensor has {want}")
        _bytes(out).copy_(payload.data)


def _bytes(x: Tensor) -> Tensor:
    """The bytes of a contiguous tensor. A single element may have any stride: view wants 1."""
    return x.as_strided((x.numel(),), (1,)).view(torch.uint8)
