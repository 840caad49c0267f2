"""Window: where in its window each maximum of a pooling was."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from actzip import kernels
from actzip.codecs import unsettled
from actzip.codecs.base import Codec
from actzip.codecs.payload import Allocate, Coded, Payload, PayloadError
from actzip.codecs.registry import register
from actzip.kernels.reference.index import packed_size


@register
@dataclass(frozen=True)
class Window(Codec):
    """The int64 indices of a max-pool come back exactly, in the bits of a place in its window.

    Two bits for a 2 by 2 window, four for 3 by 3, where the position in the whole map takes 14.
    All fields have one entry per spatial dimension (1 to 3); `size` is that of the pooled map.
    An index outside its window is a ValueError.
    """

    kernel: tuple[int, ...] = (2, 2)
    stride: tuple[int, ...] = (2, 2)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    size: tuple[int, ...] = (2, 2)

    exact: ClassVar[bool] = True

    def __post_init__(self) -> None:
        fields = (self.kernel, self.stride, self.padding, self.dilation, self.size)
        if not all(isinstance(f, tuple) and all(_is_short(n) for n in f) for f in fields):
            raise ValueError(f"{self!r}: every field is a tuple of whole numbers below 2^31")
        if len({len(f) for f in fields}) != 1 or not 1 <= len(self.kernel) <= 3:
            raise ValueError(f"{self!r}: every field has one entry per dimension, 1 to 3 of them")
        if min(*self.kernel, *self.stride, *self.dilation, *self.size) < 1 or min(self.padding) < 0:
            raise ValueError(f"{self!r}: sizes and steps are at least 1, padding at least 0")
        if self.places > 256:
            raise ValueError(f"{self!r}: a window of {self.places} places is more than 256")
        if math.prod(self.size) >= 1 << 31:
            raise ValueError(f"{self!r}: a map of 2^31 elements or more; use Index()")

    @property
    def places(self) -> int:
        return math.prod(self.kernel)

    @property
    def bits(self) -> int:
        return (self.places - 1).bit_length()

    def check(self, x: Tensor) -> None:
        if x.dtype != torch.int64 or x.dim() < len(self.kernel):
            raise TypeError(
                f"Window needs int64 indices with at least {len(self.kernel)} dimensions, got "
                f"{x.dtype} of shape {tuple(x.shape)}; other integers are stored with Index()"
            )

    def least_bytes(self, x: Tensor) -> int:
        return packed_size(x.numel(), self.bits)

    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Tensor | Coded:
        places = torch.empty(x.numel(), dtype=torch.uint8, device=x.device)
        wrong: int | Tensor = 0
        if x.numel():
            wrong = kernels.of(x, "window").encode(x, self._geometry(x.shape), places)
        waits = isinstance(wrong, Tensor) and not unsettled.reading_is_free(x.device)
        if not waits and int(wrong):
            raise ValueError(f"{self!r}: an index lies outside its window")
        data = allocate(packed_size(x.numel(), self.bits), x.device)
        if self.bits and x.numel():
            kernels.of(x, "index").encode(places, 0, self.bits, data)
        return Coded(data, word=wrong) if waits and isinstance(wrong, Tensor) else data

    def _decode(self, payload: Payload, out: Tensor) -> None:
        data = payload.data
        if data.numel() != packed_size(out.numel(), self.bits):
            raise PayloadError(
                f"{out.numel()} places of {self.bits} bits cannot have {data.numel()} bytes"
            )
        places = torch.zeros(out.numel(), dtype=torch.uint8, device=out.device)
        if self.bits and out.numel():
            kernels.of(out, "index").decode(data, 0, self.bits, places)
        if not out.numel():
            return
        wrong = kernels.of(out, "window").decode(places, self._geometry(out.shape), out)
        if not self._trusted(payload) and int(wrong):
            raise PayloadError("a place lies outside the window or the map; the bytes are damaged")

    def _view(self, x: Tensor) -> Tensor | None:
        """(maps before, depth, height, width, channels of channels_last)"""
        k = len(self.kernel)
        if x.is_contiguous():
            spatial = x.shape[x.dim() - k :]
            return x.view(-1 if x.numel() else 0, *(1,) * (3 - k), *spatial, 1)
        if x.dim() != k + 2:
            return None
        last = x.movedim(1, -1)
        if not last.is_contiguous():
            return None
        return last.view(x.shape[0], *(1,) * (3 - k), *last.shape[1:])

    def _geometry(self, shape: torch.Size) -> list[int]:
        """Pooled size, kernel, stride, padding, dilation, map size, each of three dimensions; then
        how many maps lie side by side."""
        missing = 3 - len(self.kernel)
        ones, zeros = (1,) * missing, (0,) * missing
        fields = (ones, self.kernel, ones, self.stride, zeros, self.padding, ones, self.dilation)
        return [*shape[1:4], *(n for f in (*fields, ones, self.size) for n in f), shape[4]]


def _is_short(n: object) -> bool:
    return isinstance(n, int) and not isinstance(n, bool) and n < 1 << 31
