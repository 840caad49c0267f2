"""Masks: floating slots of which backward reads one bit per element, and the two stand-ins.

Every predicate is the comparison that the op's own backward makes, NaN included; where torch
versions, dtypes or devices differ there are several, and conventions.py tries them. A level must
survive being rounded to bf16 or fp16, so levels are 0, ±1, ±inf or NaN wherever that is enough:
NaN fails every comparison, an infinity wins every one.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from actzip import planning
from actzip.autograd.slots.rule import Mask, Node

_INF, _NAN = math.inf, math.nan
_Compare = Callable[[Any, Any], Any]
#: (value, dtype, towards): the number of the dtype that splits its numbers as `value` does
_Bound = Callable[[float, torch.dtype, float], float]


def between(low: float, high: float, dtype: torch.dtype) -> float:
    """A value of the dtype strictly between two others of it, if there is one.

    Rounded to the dtype it is: whatever lies between the bounds is nearer to their midpoint than
    they are, so the value nearest to the midpoint lies there too. It always lies within the
    bounds. An infinite bound counts as the largest number, lest the midpoint be infinite.
    """
    if low < 0.0 < high:
        return 0.0
    largest = torch.finfo(dtype).max
    low, high = max(low, -largest), min(high, largest)
    total = low + high  # halves of the smallest numbers would be 0, sums of the largest infinite
    return total / 2 if math.isfinite(total) else low / 2 + high / 2


@functools.lru_cache(maxsize=1024)
def _rounded(value: float, dtype: torch.dtype, towards: float) -> float:
    """As `x > 0.3` of a bf16 tensor compares: 0.3 is rounded to bf16 first."""
    return float(torch.tensor(value, dtype=torch.float64, device="cpu").to(dtype))


@functools.lru_cache(maxsize=1024)
def _in_float32(value: float, dtype: torch.dtype, towards: float) -> float:
    """As backward compares on a CPU (threshold, hardtanh): fp16 and bf16 elements in float32, so
    that elements equal to the rounded bound may fall on the other side of it."""
    if dtype.itemsize > 2:
        return _rounded(value, dtype, towards)
    single = torch.tensor(value, dtype=torch.float64, device="cpu").float()
    rounded = single.to(dtype)
    beyond = rounded.float() > single if towards < 0 else rounded.float() < single
    return float(rounded.nextafter(rounded.new_tensor(towards)) if beyond else rounded)


def _no_nan(node: Node, x: Tensor) -> bool:
    # The sum is one cheap pass; an inf - inf inside it only costs us the bytes of one tensor.
    return planning.is_fake(x) or not bool(x.sum().isnan())


def _either(first: Mask, *others: Mask) -> Mask:
    """The first of them that agrees with the op's backward."""
    return replace(first, other=_either(*others)) if others else first


def _threshold(bound: _Bound) -> Mask:
    def above(node: Node, x: Tensor) -> Tensor:
        return ~(x <= bound(node._saved_threshold, x.dtype, -_INF))

    def levels(node: Node, x: Tensor) -> tuple[float, float]:
        unreached = bound(node._saved_threshold, x.dtype, -_INF) == _INF
        return -_INF, (_NAN if unreached else _INF)

    return Mask(above, levels)


def _hardtanh(bound: _Bound) -> Mask:
    def ends(node: Node, x: Tensor) -> tuple[float, float]:
        low, high = node._saved_min_val, node._saved_max_val
        return bound(low, x.dtype, -_INF), bound(high, x.dtype, _INF)

    def inside(node: Node, x: Tensor) -> Tensor:
        low, high = ends(node, x)
        return (x > low) & (x < high)

    # torch's kernels for this and the next give a NaN zero in full vectors and pass it in the
    # tail, so what a NaN does depends on its place: no bit can say that.
    return Mask(inside, lambda node, x: (_INF, between(*ends(node, x), x.dtype)), _no_nan)


def _shrink(bound: _Bound) -> Mask:
    def outside(node: Node, x: Tensor) -> Tensor:
        lambd: float = node._saved_lambd
        return (x < bound(-lambd, x.dtype, _INF)) | (x > bound(lambd, x.dtype, -_INF))

    return Mask(outside, lambda node, x: (0.0, _INF), _no_nan)


def _clamp(above: _Compare, below: _Compare) -> Mask:
    def inside(node: Node, x: Tensor) -> Tensor:
        low, high = node._saved_min, node._saved_max
        if low is None or high is None:  # never both
            one: Tensor = below(x, high) if low is None else above(x, low)
            return one
        both: Tensor = above(x, low) & below(x, high)
        return both

    def levels(node: Node, x: Tensor) -> tuple[float, float]:
        low, high = node._saved_min, node._saved_max
        if low is None or high is None:
            return _NAN, (-_INF if low is None else _INF)
        low, high = (_rounded(float(v), x.dtype, 0.0) for v in (low, high))
        return _NAN, low if low == high else between(low, high, x.dtype)

    return Mask(inside, levels)


def _clamp_min(above: _Compare) -> Mask:
    return Mask(lambda node, x: above(x, node._saved_min), lambda node, x: (_NAN, _INF))


def _clamp_max(below: _Compare) -> Mask:
    return Mask(lambda node, x: below(x, node._saved_max), lambda node, x: (_NAN, -_INF))


#: ReLU reads `result <= 0` and lets a NaN pass.
RELU = Mask(lambda node, x: ~(x <= 0), lambda node, x: (0.0, 1.0))
#: Leaky ReLU reads `x > 0`; in place it has only the result, whose sign is that of x.
LEAKY = Mask(lambda node, x: x > 0, lambda node, x: (-1.0, 1.0))
THRESHOLD = _either(_threshold(_in_float32), _threshold(_rounded))
HARDSIGMOID = Mask(lambda node, x: (x > -3) & (x < 3), lambda node, x: (_INF, 0.0))
HARDTANH = _either(_hardtanh(_in_float32), _hardtanh(_rounded))
SHRINK = _either(_shrink(_rounded), _shrink(_in_float32))
# At a bound the gradient passed until torch 2.13, and is 0 from 2.14 on.
CLAMP = _either(_clamp(operator.ge, operator.le), _clamp(operator.gt, operator.lt))
CLAMP_MIN = _either(_clamp_min(operator.ge), _clamp_min(operator.gt))
CLAMP_MAX = _either(_clamp_max(operator.le), _clamp_max(operator.lt))
NAN_TO_NUM = Mask(lambda node, x: torch.isfinite(x), lambda node, x: (_INF, 0.0))
NANSUM = Mask(lambda node, x: ~torch.isnan(x), lambda node, x: (_NAN, 0.0))
