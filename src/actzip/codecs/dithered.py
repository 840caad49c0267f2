"""Dithered: any number of bits per element, down to a few hundredths, with errors free of bias."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from actzip import kernels
from actzip.checks import are_finite
from actzip.codecs.base import Codec
from actzip.codecs.bounded import Bounded
from actzip.codecs.dithered_rate import conditional_entropies, stored_bits
from actzip.codecs.each import every, mapped, mean
from actzip.codecs.lengths import unless_known
from actzip.codecs.payload import Allocate, Coded, Payload
from actzip.codecs.registry import register
from actzip.kernels.bounded_layout import strict_bounds
from actzip.kernels.dithered_layout import DitheredLayout, least_bytes, sides, worst_case
from actzip.kernels.dithered_tables import Given, given
from actzip.kernels.errors import DamagedError

_CODED, _KEPT = 2, 3  #: the first byte; below, it is that of Bounded
_SMALL = 4096  #: fewer elements do not pay for tables and states


@register
@dataclass(frozen=True)
class Dithered(Codec):
    """|x - decode(encode(x))| <= error for every finite element; the error is uniform within
    ±error (a little less where the result is rounded), independent of x and zero on average.

    The step is 2 * error and may be many times larger than the values: with a step of six standard
    deviations an element takes 0.43 bits, with thirty 0.09. What is stored is within a few per cent
    of the entropy of the codes given their dither, for tensors of 2^18 elements and more. Zeros do
    not come back as zeros (`Bounded` does that). A block of 64 elements that cannot be coded within
    the error (NaN, infinity) is stored raw, bit for bit. Steps so fine that an element takes more
    than 7 bits, and small tensors, are stored as `Bounded` with its entropy stage would.

    error: one number, or a tuple with one per channel; channels are dimension 1, with
    channel_dim=-1 the last. No memory order makes a copy of the tensor.

    origin: for the input of a BatchNorm whose output passes a ReLU, the value of each channel (or
    one for all) at which BatchNorm's output crosses zero, rounded to the type of x. Then
    `decoded > origin` is exactly `x > origin`. Values that are not above it have errors of up to
    coarser * error. What would come back on the other side is moved to the origin, so there the
    error is not free of bias.

    table: how often each code occurs, as `tabled` found it in a tensor like x; without one each
    tensor is counted, which makes the host wait for a GPU. Any table is right for any tensor, and
    payloads have theirs in them; it is no part of what the codec is. With one no step is too fine,
    and a block is raw as well where its codes are larger than about 16 bits each.
    """

    error: float | tuple[float, ...] = 1e-2
    channel_dim: int = 1
    origin: float | tuple[float, ...] | None = None
    coarser: float = 1.0
    table: bytes = field(default=b"", repr=False, compare=False, metadata={"aside": True})

    def __post_init__(self) -> None:
        for name in ("error", "origin"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        errors = every(self.error)
        if not errors or not are_finite(errors) or min(errors) <= 0:
            raise ValueError(
                f"Dithered(error=...) is a finite number above 0, or a tuple of these, got "
                f"{self.error!r}; to keep every bit use Keep()"
            )
        if self.origin == () or (self.origin is not None and not are_finite(every(self.origin))):
            raise ValueError(
                f"Dithered(origin=...) is None, a finite number or a tuple of these, got "
                f"{self.origin!r}"
            )
        if not are_finite([self.coarser]) or self.coarser <= 0:
            raise ValueError(
                f"Dithered(coarser=...) is a finite number above 0, got {self.coarser!r}"
            )
        if self.coarser != 1 and self.origin is None:
            raise ValueError(
                f"Dithered(coarser={self.coarser!r}) is for values that are not above the origin; "
                "give an origin as well"
            )
        if not isinstance(self.channel_dim, int) or self.channel_dim not in (1, -1):
            raise ValueError(f"Dithered(channel_dim=...) is 1 or -1, got {self.channel_dim!r}")
        if self.table:
            given(self.table)  # says what is wrong with it
        if len(self._channels()) > 1:
            raise ValueError(
                f"Dithered was given errors for {len(every(self.error))} channels and origins for "
                f"{len(every(self.origin))}; both need one per channel, or one for all"
            )

    def _channels(self) -> set[int]:
        """How many channels the options ask for; empty when any tensor fits."""
        return {len(v) for v in (self.error, self.origin) if isinstance(v, tuple)}

    def finer(self, level: int) -> Codec:
        error = mapped(self.error, lambda e: e / 2**level)
        return dataclasses.replace(self, error=error, table=b"")

    def even(self) -> Codec:
        return dataclasses.replace(self, coarser=1.0)

    def unevenness(self, x: Tensor) -> Tensor | None:
        if self.origin is None or self.coarser == 1:
            return None
        below = torch.full((), self.coarser**2, device=x.device)
        return torch.where(
            x > self._spread(self.origin, x).to(x.dtype), torch.ones_like(below), below
        )

    def precision(self) -> tuple[str, float] | None:
        return "error", mean(self.error)

    def check(self, x: Tensor) -> None:
        super().check(x)
        for count in self._channels():
            if x.dim() < 2 or x.shape[self.channel_dim] != count:
                raise ValueError(
                    f"Dithered was given numbers for {count} channels in dimension "
                    f"{self.channel_dim}, got a tensor of shape {tuple(x.shape)}; give one number, "
                    "or one per channel"
                )

    def rate(
        self, x: Tensor, factors: Sequence[float] = (1.0,), centre: float | tuple[float, ...] = 0.0
    ) -> list[float]:
        """Bits that an element of a tensor like x takes when all errors are so many times larger.

        From the entropy of the codes given their dither, for some 8192 elements of x. `centre` is
        subtracted before, one number or one for each channel.
        """
        self.check(x)
        # a prime apart: equal distances would meet the same corner of every map
        index = torch.arange(min(x.numel(), 8192), device=x.device) * 2654435761 % max(1, x.numel())
        places = torch.unravel_index(index, x.shape) if x.dim() else ()
        values = (x[places] if x.dim() else x.view(1)).double() - self._at(centre, places, x)
        errors, origin = self._at(self.error, places, x), None
        above = torch.ones_like(values, dtype=torch.bool)
        if self.origin is not None:
            origin = self._at(self.origin, places, x)
            above = values > origin
            errors = torch.where(above, errors, errors * self.coarser)
            values = (values - origin).abs()
        t = values / (2 * errors)
        entropies = conditional_entropies(t, factors, None if origin is None else above)
        return [stored_bits(entropy) for entropy in entropies]

    def _at(self, value: Any, places: tuple[Tensor, ...], x: Tensor) -> Tensor:
        """The number that belongs to each of these elements."""
        numbers = torch.tensor(every(value), dtype=torch.float64, device=x.device)
        if not isinstance(value, tuple):
            return numbers.expand(places[0].shape if places else (1,))
        return numbers[places[self.channel_dim % x.dim()]]

    def _spread(self, value: Any, x: Tensor) -> Tensor:
        """The number that belongs to each element, in a shape that goes with x's."""
        numbers = torch.tensor(every(value), dtype=torch.float64, device=x.device)
        if not isinstance(value, tuple):
            return numbers[0]
        return numbers.view([-1 if d == self.channel_dim % x.dim() else 1 for d in range(x.dim())])

    def max_error(self, x: Tensor) -> Tensor:
        """The error that was asked for, for each element."""
        bound = self._spread(self.error, x)
        if self.origin is not None:
            above = x > self._spread(self.origin, x).to(x.dtype)
            bound = torch.where(above, bound, bound * self.coarser)
        return bound.expand(x.shape)

    def variance(self, x: Tensor) -> float:
        """Mean squared error when no block is raw: a uniform error within ±error."""
        return float((self.max_error(x) ** 2 / 3).mean()) if x.numel() else 0.0

    def _view(self, x: Tensor) -> Tensor | None:
        """x as (…, channels, …) as it lies in memory."""
        dense = super()._view(x)
        if dense is None:
            return None
        channels = x.shape[self.channel_dim] if self._channels() and x.dim() > 1 else 1
        if channels <= 1 or x.numel() == 0:
            return dense.view(1, 1, -1)
        return dense.view(-1, channels, x.stride(self.channel_dim % x.dim()))

    def _layout(self, x: Tensor) -> DitheredLayout:
        """Of a tensor as `_view` has it; the last one is kept, for decoding and the next tensor."""
        key = (x.shape, x.dtype, x.device)
        kept: tuple[object, DitheredLayout] | None = self.__dict__.get("_kept")
        if kept is None or kept[0] != key:
            kept = (key, self._new_layout(x))
            object.__setattr__(self, "_kept", kept)
        return kept[1]

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_kept", "_bounded", "_given")
        return {k: v for k, v in self.__dict__.items() if k not in left_out}

    def _new_layout(self, x: Tensor) -> DitheredLayout:
        errors, origins = every(self.error), every(0.0 if self.origin is None else self.origin)
        if x.shape[1] == 1:  # expanded channels are stored once, with the strictest bound of them
            errors, origins = (min(errors),), origins[:1]
        count = max(len(errors), len(origins))
        errors *= count // len(errors)
        bounds, both = strict_bounds(errors, x.dtype, x.device), None
        if self.origin is not None:
            lower = strict_bounds([e * self.coarser for e in errors], x.dtype, x.device)
            both = sides(origins * (count // len(origins)), lower, x.dtype)
        return DitheredLayout(x.numel(), x.dtype, bounds, x.shape[2], both)

    def least_bytes(self, x: Tensor) -> int:
        return min(Bounded(entropy=True).least_bytes(x), least_bytes(x.numel()))

    @cached_property
    def _bounded(self) -> Bounded:
        return Bounded(self.error, entropy=True)

    def tabled(self, x: Tensor) -> Dithered:
        """The same with a table for tensors like x; as it is where that would not be used."""
        self.check(x)
        table = self._table_of(self._dense(x.detach()))
        return self if table is None else dataclasses.replace(self, table=table)

    def _table_of(self, x: Tensor) -> bytes | None:
        if not self._fits(x):
            return None
        found = kernels.of(x, "dithered").choose_for(x.view(-1), self._layout(x), 1)
        return None if found is None else found.stored()

    @cached_property
    def _given(self) -> Given | None:
        return given(self.table) if self.table else None

    def _fits(self, x: Tensor) -> bool:
        """Whether a tensor as `_view` has it is one for this format. Values that are stored once
        for channels of several origins have a side for each of them."""
        return x.numel() >= _SMALL and (x.shape[1] > 1 or len(set(every(self.origin))) == 1)

    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Coded:
        found = self._coded(x, seed, allocate)
        if found is not None:
            return found
        if self.origin is None:
            return self._bounded._encode(x, seed, allocate)
        data = allocate(x.nbytes + 1, x.device)
        data[1:].copy_(_as_bytes(x))
        data[:1] = _KEPT
        return Coded(data, known=(_KEPT,))

    def _coded(self, x: Tensor, seed: int, allocate: Allocate) -> Coded | None:
        """None for what is stored otherwise: small tensors, steps that are too fine."""
        if not self._fits(x):
            return None
        flat, layout, kernel = x.view(-1), self._layout(x), kernels.of(x, "dithered")
        table = self._given
        if table is not None and kernels.backend_of(x.device, "dithered") == "triton":
            worst = 1 + worst_case(layout, table)
            write = functools.partial(kernel.encode_within, flat, layout, seed)
            later = unless_known(x, worst, lambda data: write(data, table, _CODED))
            if later is not None:
                return later._replace(known=(_CODED, table))
        data = x.new_empty(0, dtype=torch.uint8)

        def room(nbytes: int) -> Tensor:
            nonlocal data
            data = allocate(nbytes + 1, x.device)
            return data[1:]

        if kernel.encode(flat, layout, seed, room, table) is None:
            return None
        data[:1] = _CODED
        return Coded(data, known=(_CODED, table))

    def _decode(self, payload: Payload, out: Tensor) -> None:
        data = payload.data
        first, *known = payload.known or (int(data[0]) if data.numel() else _KEPT + 1,)
        if first == _CODED and out.numel():  # of nothing there are no codes
            flat, table = out.view(-1), known[0] if known and self._trusted(payload) else None
            kernel, layout = kernels.of(out, "dithered"), self._layout(out)
            kernel.decode(data[1:], layout, payload.seed, flat, table)
        elif first == _KEPT and self.origin is not None:
            if data.numel() != 1 + out.nbytes:
                raise DamagedError(f"{data.numel()} bytes are not {out.numel()} values")
            _as_bytes(out).copy_(data[1:])
        elif first < _CODED and self.origin is None:
            self._bounded._decode(payload, out)
        else:
            raise DamagedError("the first byte does not say how the codes are stored")


def rate(x: Tensor, steps: Sequence[float]) -> list[float]:
    """Bits per element of a tensor like x when coded with each of these steps (`Dithered.rate`)."""
    return Dithered(0.5).rate(x, steps)


def _as_bytes(x: Tensor) -> Tensor:
    """The bytes of a dense tensor; one of a single element may have any strides."""
    return x.as_strided((x.numel(),), (1,)).view(torch.uint8)
