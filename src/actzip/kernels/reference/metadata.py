"""Per-group metadata in plain PyTorch: the twin of csrc/group/meta.hpp.

Least value and step are rounded to the upper half of their bits (bfloat16 for float32, 32 bits for
float64) before anything is quantized, the least value downwards and the step upwards, so that the
group still fits. A group is raw, stored as it is, when it holds a NaN or an infinity, values so
large that a code could overflow, or a range so small that its step has no reciprocal.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class _Real:
    bits: torch.dtype
    half: torch.dtype
    low: int  #: mask of the lower half
    shift: int
    largest: float
    smallest: float


REAL = {
    torch.float32: _Real(torch.int32, torch.int16, 0xFFFF, 16, 2.0**124, 2.0**-100),
    torch.float64: _Real(torch.int64, torch.int32, 0xFFFFFFFF, 32, 2.0**1020, 2.0**-900),
}


@dataclass(frozen=True)
class Metadata:
    lo: Tensor
    step: Tensor
    raw: Tensor  #: bool


def real_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which elements of this type are computed."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def upper_floor(x: Tensor) -> Tensor:
    """The largest value of half the bits that is not above x."""
    real = REAL[x.dtype]
    bits = x.view(real.bits)
    return (torch.where(x < 0, bits + real.low, bits) & ~real.low).view(x.dtype)


def upper_ceil(x: Tensor) -> Tensor:
    """The smallest value of half the bits that is not below x, for x >= 0."""
    real = REAL[x.dtype]
    return ((x.view(real.bits) + real.low) & ~real.low).view(x.dtype)


def extremes(x: Tensor, zero: bool) -> tuple[Tensor, Tensor]:
    """Least and largest value in the last dimension, NaN where there is one.

    zero: of the elements that are not zero; +inf and -inf where there are none.
    """
    if not zero:
        return x.amin(-1), x.amax(-1)
    there = x != 0
    return (
        torch.where(there, x, float("inf")).amin(-1),
        torch.where(there, x, -float("inf")).amax(-1),
    )


def measure(lo: Tensor, hi: Tensor, levels: Tensor) -> Metadata:
    """Metadata of groups from their `extremes`; `levels` is the largest code of each."""
    real_kind = real_type(lo.dtype)
    real = REAL[real_kind]
    lo, hi = lo.to(real_kind), hi.to(real_kind)
    zero = torch.zeros((), dtype=real_kind, device=lo.device)
    none = lo > hi
    raw = ~((lo >= -real.largest) & (hi <= real.largest) | none)
    lo, hi = torch.where(none | raw, zero, lo), torch.where(none | raw, zero, hi)
    base = upper_floor(lo + 0.0)
    width = hi - base
    raw = raw | ((levels > 0) & (width != 0) & (width < real.smallest))
    step = upper_ceil(width / levels.clamp(min=1).to(real_kind))
    flat = (levels == 0) | (width == 0) | raw
    middle = upper_floor(lo * 0.5 + hi * 0.5 + 0.0)
    base = torch.where(levels == 0, middle, base)
    return Metadata(torch.where(raw, zero, base), torch.where(flat, zero, step), raw)


def store(meta: Metadata) -> Tensor:
    """All least values, then all steps, as bytes; a raw group has all bits of its step set."""
    real = REAL[meta.lo.dtype]
    lo = (meta.lo.flatten().view(real.bits) >> real.shift).to(real.half)
    step = (meta.step.flatten().view(real.bits) >> real.shift).to(real.half)
    step = torch.where(meta.raw.flatten(), torch.full_like(step, -1), step)
    return torch.cat([lo, step]).view(torch.uint8)


def load(data: Tensor, groups: int, dtype: torch.dtype) -> Metadata:
    real = REAL[dtype]
    halves = data.clone().view(real.half)  # a copy: payload bytes need not be aligned
    wide = (halves.to(real.bits) << real.shift).view(dtype)
    raw = halves[groups:] == -1
    zero = torch.zeros((), dtype=dtype, device=data.device)
    return Metadata(
        torch.where(raw, zero, wide[:groups]), torch.where(raw, zero, wide[groups:]), raw
    )
