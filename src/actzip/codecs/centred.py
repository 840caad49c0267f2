"""Centred: `Dithered` for channels whose values lie about centres that are known beforehand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from actzip.codecs.base import Codec
from actzip.codecs.dithered import Dithered
from actzip.codecs.each import is_number, mapped, mean
from actzip.codecs.payload import Allocate, Coded, Payload
from actzip.codecs.registry import register


@register
@dataclass(frozen=True)
class Centred(Codec):
    """|x - decode(encode(x))| <= error, and what two roundings in x's type add, for every finite
    element; the error is that of `Dithered`: uniform, independent of x and zero on average.

    What is coded is the distance to the centre of each channel, which the codec holds and no
    payload does. In a transformer channels have means many times larger than their spread, and one
    table of codes for all of them takes one bit per element more than it has to. Any centres will
    do: those of another batch cost as much as they are off.

    centre: one number per channel. error, channel_dim: as of `Dithered`. Encoding makes one copy of
    the tensor, decoding none.
    table: as of `Dithered`.
    """

    centre: tuple[float, ...]
    error: float | tuple[float, ...] = 1e-2
    channel_dim: int = 1
    table: bytes = field(default=b"", repr=False, compare=False, metadata={"aside": True})

    def __post_init__(self) -> None:
        for name in ("centre", "error"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        numbers = isinstance(self.centre, tuple) and self.centre
        if not numbers or not all(is_number(c) for c in self.centre):
            raise ValueError(
                f"Centred(centre=...) is a tuple with a finite number per channel, got "
                f"{self.centre!r}; without centres use Dithered()"
            )
        if isinstance(self.error, tuple) and len(self.error) not in (0, len(self.centre)):
            raise ValueError(
                f"Centred was given errors for {len(self.error)} channels and centres of "
                f"{len(self.centre)}; give one error per channel, or one for all"
            )
        self._coder.precision()  # Dithered says what is wrong with the other options

    @cached_property
    def _coder(self) -> Dithered:
        return Dithered(self.error, self.channel_dim, table=self.table)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def finer(self, level: int) -> Codec:
        error = mapped(self.error, lambda e: e / 2**level)
        return dataclasses.replace(self, error=error, table=b"")

    def precision(self) -> tuple[str, float] | None:
        return "error", mean(self.error)

    def check(self, x: Tensor) -> None:
        super().check(x)
        count = len(self.centre)
        if x.dim() < 2 or x.shape[self.channel_dim] != count:
            raise ValueError(
                f"Centred was given centres of {count} channels in dimension {self.channel_dim}, "
                f"got a tensor of shape {tuple(x.shape)}; give one per channel"
            )

    def rate(self, x: Tensor, factors: Sequence[float] = (1.0,)) -> list[float]:
        """Bits that an element of a tensor like x takes when all errors are so many times larger;
        for large tensors."""
        self.check(x)
        return self._coder.rate(x, factors, self.centre)

    def max_error(self, x: Tensor) -> Tensor:
        """The error that was asked for, for each element, and the roundings."""
        around = [-1 if d == self.channel_dim % x.dim() else 1 for d in range(x.dim())]
        largest = x.abs().double() + self._centres(x).double().abs().view(around)
        bound = self._coder.max_error(x)
        return bound + torch.finfo(x.dtype).eps * (largest.nan_to_num(0.0, 0.0, 0.0) + bound)

    def variance(self, x: Tensor) -> float:
        """Mean squared error when no block is raw: a uniform error within ±error."""
        return self._coder.variance(x)

    def least_bytes(self, x: Tensor) -> int:
        return self._coder.least_bytes(x)

    def _view(self, x: Tensor) -> Tensor | None:
        """x as (…, channels, …) as it lies in memory."""
        dense = super()._view(x)
        if dense is None or x.dim() < 2:
            return dense
        channels = x.shape[self.channel_dim]
        if channels <= 1 or x.numel() == 0:
            return dense.view(1, 1, -1)
        return dense.view(-1, channels, x.stride(self.channel_dim % x.dim()))

    def _centres(self, x: Tensor) -> Tensor:
        """In x's type, and so small that no value of it overflows."""
        kept: tuple[object, Tensor] | None = self.__dict__.get("_kept")
        if kept is None or kept[0] != (x.dtype, x.device):
            kind = torch.finfo(x.dtype)
            most = kind.max * kind.eps / 4  # a quarter of the distance between its largest values
            found = torch.tensor(self.centre, dtype=torch.float64).clamp(-most, most)
            kept = (x.dtype, x.device), found.to(x.device, x.dtype)
            self.__dict__["_kept"] = kept
        return kept[1]

    def _shift(self, dense: Tensor) -> Tensor:
        """The centres beside a tensor as `_view` has it; expanded channels are stored once."""
        return self._centres(dense)[: dense.shape[1]].view(-1, 1)

    def _plain(self, dense: Tensor) -> Tensor:
        """As the inner codec has it: without channels when it has one error for all."""
        return dense if isinstance(self.error, tuple) else dense.view(1, 1, -1)

    def tabled(self, x: Tensor) -> Centred:
        """The same with a table for tensors like x; as it is where that would not be used."""
        self.check(x)
        dense = self._dense(x.detach())
        table = self._coder._table_of(self._plain(dense - self._shift(dense)))
        return self if table is None else dataclasses.replace(self, table=table)

    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Coded:
        return self._coder._encode(self._plain(x - self._shift(x)), seed, allocate)

    def _decode(self, payload: Payload, out: Tensor) -> None:
        self._coder._decode(payload, self._plain(out))
        if out.numel():
            out += self._shift(out)
