"""Dropout on a CPU saves its mask as a floating factor: 0 or one scale, in the slot of a `mul`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from actzip.autograd.slots.rule import Mask, Rule
from actzip.methods.base import Role

_GLANCE = 64
_INT = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def noise(x: Tensor) -> Rule | None:
    """The mask rule of a factor whose elements are all +0 or one positive number; else None.

    `F.dropout` on a CPU is `x * noise`, so (`MulBackward0`, `other`) holds one bit per element in
    a whole float; alpha dropout, SDPA's math path and the dropout between LSTM layers do the same.
    Only the values can tell, so ask for factors without a producer. A tensor that is no noise is
    known by its first elements; the rest is read twice.
    """
    if not x.is_floating_point() or x.itemsize not in _INT or x.numel() == 0:
        return None
    if not _binary(_head(x)) or not _binary(x):
        return None
    scale = float(x.amax())
    if not math.isfinite(scale):
        return None
    return Rule(Role.MASK, Mask(lambda node, t: t != 0, lambda node: (0.0, scale)))


def _head(x: Tensor) -> Tensor:
    """A small view of x's beginning, whatever its strides."""
    for dim in range(x.dim()):
        x = x.narrow(dim, 0, min(x.size(dim), _GLANCE if dim == x.dim() - 1 else 1))
    return x


def _binary(x: Tensor) -> bool:
    # as integers, because a factor of -0.0 gives another zero than +0.0 does
    bits = x.detach().view(_INT[x.itemsize])
    scale = bits.amax()  # of positive floats the largest has the largest bits
    return bool((bits == 0).logical_or_(bits == scale).all()) and bool(scale >= 0)
