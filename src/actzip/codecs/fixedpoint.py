"""FixedPoint: AC-GC's format, a step and a number of bits per channel."""

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
from actzip.kernels.bounded_layout import SPARE, real_of
from actzip.kernels.fixedpoint_layout import ROUNDING, FixedPointLayout
from actzip.kernels.reference.fixedpoint import largest


@register
@dataclass(frozen=True)
class FixedPoint(Codec):
    """Integers of 2 to 16 bits, sign included, with one step per channel (dimension 1).

    step = max |x| over the channel / (2^(bits - 1) - 1). Beside the rounding of the dtype itself:

    - rounding="dither" (default): |x - decode(encode(x))| <= step / 2, zero on average, variance
      step² / 12.
    - rounding="stochastic": within a step, zero on average, variance up to step² / 4.
    - rounding="nearest": |x - decode(encode(x))| <= step / 2, deterministic.

    skip_zeros=True stores a bitmap of the zeros and codes of the other values only: zeros come
    back as exact zeros. A NaN or an infinity has a code of its own and comes back as itself; it
    takes no part in the channel's maximum. bits is one number, or a tuple with one per channel.
    Channels are dimension 1, with channel_dim=-1 the last; a tensor without it is one channel.
    """

    bits: int | tuple[int, ...] = 6
    skip_zeros: bool = False
    rounding: str = "dither"
    channel_dim: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.bits, list):
            object.__setattr__(self, "bits", tuple(self.bits))
        checks.whole(self, "bits", least=2, most=16, several=True)
        checks.one_of(self, "rounding", ROUNDING)
        checks.flag(self, "skip_zeros")
        checks.one_of(self, "channel_dim", (1, -1))

    @property
    def keeps_zeros(self) -> bool:
        return False

    def finer(self, level: int) -> Codec:
        return dataclasses.replace(self, bits=mapped(self.bits, lambda b: min(16, b + level)))

    def precision(self) -> tuple[str, float] | None:
        return "bits", mean(self.bits)

    def check(self, x: Tensor) -> None:
        super().check(x)
        if isinstance(self.bits, tuple) and (
            x.dim() < 2 or x.shape[self.channel_dim] != len(self.bits)
        ):
            raise ValueError(
                f"FixedPoint was given bits for {len(self.bits)} channels in dimension "
                f"{self.channel_dim}, got a tensor of shape {tuple(x.shape)}; give one number, or "
                "one per channel"
            )

    def max_error(self, x: Tensor) -> Tensor:
        """The bound of the class docstring for each element, with the rounding of the dtype."""
        dense = x.detach().contiguous()
        layout = self._layout(dense)
        # the last factor: encoding compares with the limit in computing precision
        limits = layout.limits(largest(dense.view(-1), layout)).double() * (1 + 2.0**-20)
        bound = limits[
            torch.arange(dense.numel(), device=x.device) // layout.inner % limits.numel()
        ]
        bound = bound.view(dense.shape)
        return torch.where(x == 0, torch.zeros_like(bound), bound) if self.skip_zeros else bound

    def variance(self, x: Tensor) -> float:
        """Mean squared error: step²/12, twice that for "stochastic"; none in skipped zeros."""
        if x.numel() == 0:
            return 0.0
        dense = x.detach().contiguous()
        layout = self._layout(dense)
        steps = layout.steps(largest(dense.view(-1), layout)).double()
        each = steps[torch.arange(dense.numel(), device=x.device) // layout.inner % steps.numel()]
        each = each**2 / (6 if self.rounding == "stochastic" else 12)
        coded = dense.view(-1).isfinite()
        if self.skip_zeros:
            coded &= dense.view(-1) != 0
        return float((each * coded).mean())

    def _logical(self) -> bool:
        return True

    def _channels(self, x: Tensor) -> tuple[int, int]:
        """How many channels there are, and how many elements of one follow each other."""
        if x.dim() < 2:
            return 1, 1
        dim = self.channel_dim % x.dim()
        return max(1, x.shape[dim]), max(1, math.prod(x.shape[dim + 1 :]))

    def _layout(self, x: Tensor) -> FixedPointLayout:
        channels, inner = self._channels(x)
        bits = self.bits if isinstance(self.bits, tuple) else (self.bits,) * channels
        if len(bits) != channels:  # expanded channels are stored once, with the most of their bits
            bits = (max(bits),)
        rounding = ROUNDING[self.rounding]
        return FixedPointLayout(x.numel(), x.dtype, bits, inner, rounding, self.skip_zeros)

    def least_bytes(self, x: Tensor) -> int:
        each = self.bits if isinstance(self.bits, tuple) else (self.bits,)
        steps = self._channels(x)[0] * real_of(x.dtype).itemsize
        return steps + x.numel() * (1 if self.skip_zeros else min(each)) // 8

    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Tensor | Coded:
        kernel, flat, layout = kernels.of(x, "fixedpoint"), x.view(-1), self._layout(x)
        worst = layout.worst_case + SPARE
        later = unless_known(x, worst, lambda d: kernel.encode_within(flat, layout, seed, d))
        if later is not None:
            return later
        return kernel.encode(flat, layout, seed, lambda nbytes: allocate(nbytes, x.device))

    def _decode(self, payload: Payload, out: Tensor) -> None:
        kernel, layout, trusted = (
            kernels.of(out, "fixedpoint"),
            self._layout(out),
            self._trusted(payload),
        )
        kernel.decode(payload.data, layout, payload.seed, out.view(-1), trusted)
