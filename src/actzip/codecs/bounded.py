"""Bounded: a strict bound on the error of every element; COMET's codec."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from actzip import checks, kernels
from actzip.codecs.base import Codec
from actzip.codecs.each import mapped, mean
from actzip.codecs.lengths import unless_known
from actzip.codecs.payload import Allocate, Coded, Payload
from actzip.codecs.registry import register
from actzip.kernels.bounded_layout import (
    BLOCK,
    SPARE,
    BoundedLayout,
    strict_bounds,
    worst_case,
)
from actzip.kernels.entropy_table import least_coded
from actzip.kernels.errors import DamagedError


@register
@dataclass(frozen=True)
class Bounded(Codec):
    """|x - decode(encode(x))| <= error for every finite element; zeros come back as exact zeros.

    - rounding="dither" (default): the error is uniform within ±error (a little less where the
      result is rounded to 16 bits), independent of x and zero on average. Nothing but zero comes
      back as zero, so `decoded != 0` is exactly `x != 0`: for the result of a ReLU, its mask. (Its
      sign is not: a positive value below the error may come back negative.)
    - rounding="nearest": deterministic; values up to the error come back as zero.

    Values are quantized to integers, 64 of them form a block, and each block is packed in the
    shortest of three ways: all codes, a bitmap of the zeros and the other codes, or differences.
    After quantizing, the bound is checked on what decoding will give: a block that fails (NaN,
    infinity, values too large for the error) is stored raw, bit for bit. A payload is at most 1 %
    and a few bytes larger than the tensor.

    error: one number, or a tuple with one per channel; channels are dimension 1, with
    channel_dim=-1 the last. predict="lorenzo": differences are taken in two dimensions, in the
    maps of the last two. entropy=True: the integers or their differences, whichever takes fewer
    bits, are entropy-coded when that is shorter than packing.
    """

    error: float | tuple[float, ...] = 1e-2
    rounding: str = "dither"
    entropy: bool = False
    predict: str | None = None
    channel_dim: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.error, list):
            object.__setattr__(self, "error", tuple(self.error))
        checks.positive(self, "error", several=True, advice="to keep every bit use Keep()")
        checks.one_of(self, "rounding", ("dither", "nearest"))
        checks.one_of(self, "predict", (None, "lorenzo"))
        checks.flag(self, "entropy")
        checks.one_of(self, "channel_dim", (1, -1))

    @property
    def keeps_zeros(self) -> bool:
        return self.rounding == "dither"

    def finer(self, level: int) -> Codec:
        return dataclasses.replace(self, error=mapped(self.error, lambda e: e / 2**level))

    def precision(self) -> tuple[str, float] | None:
        return "error", mean(self.error)

    def check(self, x: Tensor) -> None:
        super().check(x)
        if not isinstance(self.error, tuple):
            return
        if x.dim() < 2 or x.shape[self.channel_dim] != len(self.error):
            raise ValueError(
                f"Bounded was given errors for {len(self.error)} channels in dimension "
                f"{self.channel_dim}, got a tensor of shape {tuple(x.shape)}; give one number, or "
                "one per channel"
            )

    def max_error(self, x: Tensor) -> Tensor:
        """The error that was asked for, for each element; 0 for zeros."""
        errors = self.error if isinstance(self.error, tuple) else (self.error,)
        bound = torch.tensor(errors, dtype=torch.float64, device=x.device)
        if isinstance(self.error, tuple):
            bound = bound.view(
                [-1 if d == self.channel_dim % x.dim() else 1 for d in range(x.dim())]
            )
        else:
            bound = bound[0]
        return torch.where(x == 0, torch.zeros_like(bound), bound).expand(x.shape)

    def variance(self, x: Tensor) -> float:
        """Mean squared error when no block is raw: a uniform error within ±error, none in zeros."""
        return float((self.max_error(x) ** 2 / 3).mean()) if x.numel() else 0.0

    def _logical(self) -> bool:
        return isinstance(self.error, tuple) or self.predict is not None

    def _layout(self, x: Tensor) -> BoundedLayout:
        errors = self.error if isinstance(self.error, tuple) else (self.error,)
        inner = 1
        if isinstance(self.error, tuple):
            dim = self.channel_dim % x.dim()
            # expanded channels are stored once, with the strictest bound of them
            errors = errors if x.shape[dim] == len(errors) else (min(errors),)
            inner = max(1, math.prod(x.shape[dim + 1 :]))
        width, height = 0, 1
        if self.predict is not None and x.dim() > 0:
            width, height = max(1, x.shape[-1]), max(1, x.shape[-2]) if x.dim() > 1 else 1
        bounds = strict_bounds(errors, x.dtype, x.device)
        dither = self.rounding == "dither"
        return BoundedLayout(x.numel(), x.dtype, bounds, inner, dither, width, height)

    def least_bytes(self, x: Tensor) -> int:
        packed = x.numel() // BLOCK  # a header each, when all values of the blocks are zero
        return min(packed, least_coded(x.numel())) if self.entropy else packed

    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Coded:
        layout, flat, data = self._layout(x), x.view(-1), x.new_empty(0, dtype=torch.uint8)
        if not self.entropy:
            worst, kernel = worst_case(layout) + SPARE, kernels.of(x, "bounded")
            later = unless_known(x, worst, lambda d: kernel.encode_within(flat, layout, seed, d))
            if later is not None:
                return later

        def room(nbytes: int) -> Tensor:
            nonlocal data
            data = allocate(nbytes + int(self.entropy), x.device)
            return data[int(self.entropy) :]

        coded = False
        if self.entropy:
            found = kernels.of(x, "bounded_entropy").encode(flat, layout, seed, room)
            coded = found is not None
        if not coded:
            kernels.of(x, "bounded").encode(flat, layout, seed, room)
        if self.entropy:
            data[:1] = int(coded)
        return Coded(data, known=(int(coded),))

    def _decode(self, payload: Payload, out: Tensor) -> None:
        layout, data = self._layout(out), payload.data
        if self.entropy:
            if data.numel() == 0:
                raise DamagedError("the first byte does not say how the codes are stored")
            (coded,) = payload.known or (int(data[0]),)
            if coded > 1:
                raise DamagedError("the first byte does not say how the codes are stored")
            data = data[1:]
            if coded:
                kernels.of(out, "bounded_entropy").decode(data, layout, payload.seed, out.view(-1))
                return
        trusted = self._trusted(payload)
        kernels.of(out, "bounded").decode(data, layout, payload.seed, out.view(-1), trusted)
