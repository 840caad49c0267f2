"""Masks: floating slots of which backward reads one bit per element, and the two stand-ins.

Every predicate is the comparison that the op's own backward makes, NaN included. A level must
survive being rounded to bf16 or fp16, so levels are 0, ±1, ±inf or NaN wherever that is enough:
NaN fails every comparison, an infinity wins every one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from actzip.autograd.slots.rule import Mask, Node

_INF, _NAN = math.inf, math.nan
_HALF_MAX = 65504.0  # the largest finite float16


def between(low: float, high: float) -> float:
    """A value that, rounded to any dtype, lies strictly between low and high if one of it does.

    The midpoint does: whatever lies between, the value nearest to the midpoint lies there too. And
    as rounding keeps the order, it always lies within the rounded bounds, which is what `clamp`
    compares with. Only an infinite bound and the overflow of float16 need care.
    """
    if low == high or low < 0.0 < high:
        return low if low == high else 0.0
    if math.isinf(high):
        high = 2 * low + 2
    elif math.isinf(low):
        low = 2 * high - 2
    middle = low / 2 + high / 2
    limit = math.copysign(_HALF_MAX, middle)
    return limit if abs(middle) > _HALF_MAX and low < limit < high else middle


def _no_nan(node: Node, x: Tensor) -> bool:
    # The sum is one cheap pass; an inf - inf inside it only costs us the bytes of one tensor.
    return not bool(x.sum().isnan())


def _not_le_zero(node: Node, x: Tensor) -> Tensor:
    return ~(x <= 0)


def _above_zero(node: Node, x: Tensor) -> Tensor:
    return x > 0


def _bound(value: float, x: Tensor, towards: float) -> float:
    """The value of x's dtype that splits x's elements where the op's backward splits them.

    `x > 0.3` of a bf16 tensor rounds 0.3 to bf16 first; backward on a CPU compares in float32, so
    that elements equal to the rounded bound fall on the other side (threshold, hardtanh).
    """
    if x.itemsize > 2 or x.device.type != "cpu":
        return value
    single = torch.tensor(value, dtype=torch.float32)
    rounded = single.to(x.dtype)
    beyond = rounded.float() > single if towards < 0 else rounded.float() < single
    return float(rounded.nextafter(rounded.new_tensor(towards)) if beyond else rounded)


def _above_threshold(node: Node, x: Tensor) -> Tensor:
    return ~(x <= _bound(node._saved_threshold, x, -_INF))


def _threshold_levels(node: Node) -> tuple[float, float]:
    return -_INF, (_NAN if node._saved_threshold == _INF else _INF)


def _in_hardtanh(node: Node, x: Tensor) -> Tensor:
    low, high = node._saved_min_val, node._saved_max_val
    return (x > _bound(low, x, -_INF)) & (x < _bound(high, x, _INF))


def _hardtanh_levels(node: Node) -> tuple[float, float]:
    return _INF, between(node._saved_min_val, node._saved_max_val)


def _in_clamp(node: Node, x: Tensor) -> Tensor:
    low, high = node._saved_min, node._saved_max
    if low is None or high is None:  # never both
        inside: Tensor = x <= high if low is None else x >= low
    else:
        inside = (x >= low) & (x <= high)
    return inside


def _clamp_levels(node: Node) -> tuple[float, float]:
    low, high = node._saved_min, node._saved_max
    return _NAN, between(-_INF if low is None else low, _INF if high is None else high)


def _outside_lambd(node: Node, x: Tensor) -> Tensor:
    lambd: float = node._saved_lambd
    return (x < -lambd) | (x > lambd)


#: ReLU reads `result <= 0` and lets a NaN pass.
RELU = Mask(_not_le_zero, lambda node: (0.0, 1.0))
#: Leaky ReLU reads `x > 0`; in place it has only the result, whose sign is that of x.
LEAKY = Mask(_above_zero, lambda node: (-1.0, 1.0))
THRESHOLD = Mask(_above_threshold, _threshold_levels)
HARDSIGMOID = Mask(lambda node, x: (x > -3) & (x < 3), lambda node: (_INF, 0.0))
# torch's kernels for the next two give a NaN zero in full vectors and pass it in the tail, so
# what a NaN does depends on its place: no bit can say that.
HARDTANH = Mask(_in_hardtanh, _hardtanh_levels, _no_nan)
SHRINK = Mask(_outside_lambd, lambda node: (0.0, _INF), _no_nan)
CLAMP = Mask(_in_clamp, _clamp_levels)
CLAMP_MIN = Mask(lambda node, x: x >= node._saved_min, lambda node: (_NAN, _INF))
CLAMP_MAX = Mask(lambda node, x: x <= node._saved_max, lambda node: (_NAN, -_INF))
NAN_TO_NUM = Mask(lambda node, x: torch.isfinite(x), lambda node: (_INF, 0.0))
NANSUM = Mask(lambda node, x: ~torch.isnan(x), lambda node: (_NAN, 0.0))
