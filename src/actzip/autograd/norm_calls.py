"""A norm's result from its input and the moments that its node saved.

With the moments of the original a code of the input that has no bias gives a result that has none;
with new moments of the decoded input, whose variance has the code's noise in it, it would not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from actzip import kernels
from actzip.autograd.slots import Node, op
from actzip.control.op import Kind

#: Where a norm has its weight and bias among the arguments.
_AFFINE: dict[Any, tuple[int, int]] = {
    F.batch_norm: (3, 4),
    torch.batch_norm: (1, 2),
    F.layer_norm: (2, 3),
    torch.layer_norm: (2, 3),
    F.group_norm: (2, 3),
    torch.group_norm: (2, 3),
    F.rms_norm: (2, 99),
    torch.rms_norm: (2, 99),
}

_RAW = "_raw_saved_"
_STEEP = 32.0  #: the peaks of usual rows are 3 to 6 deviations


def norm_call(
    node: Node, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None:
    """The function that makes a norm's result again, and its arguments; None if there is none."""
    places = _AFFINE.get(func)
    if places is None or not (args or "input" in kwargs):
        return None
    x = args[0] if args else kwargs["input"]
    weight, bias = (
        args[at] if at < len(args) else kwargs.get(name)
        for at, name in zip(places, ("weight", "bias"), strict=True)
    )
    first, second = _held(node, "result1"), _held(node, "result2")
    kind = op(type(node).__name__).kind
    if first is None or not first.numel():  # BatchNorm with frozen statistics has none
        return None
    if second is None:
        return (rms_norm, (x, first, weight), {}) if kind is Kind.ROW_NORM else None
    return _NORMS[kind], (x, first, second, weight, bias), {}


def _held(node: Node, slot: str) -> Tensor | None:
    """A small result that the node holds, and nobody else: to hold it too costs nothing."""
    raw = getattr(node, _RAW + slot, None)
    if raw is None or raw.unpack_hook is not None:
        return None
    t = raw.data
    return t.detach() if isinstance(t, Tensor) else None


def is_steep(*moments: Tensor) -> bool:
    """Whether the least deviation of a row or channel is small beside the values of all of them: an
    error that is small beside those may be larger than all that this row's result is.

    A constant row divides by the root of eps alone: its result is 0, and 316 times the error.
    """
    rstd = moments[-1].double()
    square = rstd.pow(-2).mean()
    for mean in moments[:-1]:
        square = square + mean.double().square().mean()
    return bool(square.sqrt() * rstd.max() > _STEEP)


def layer_norm(
    x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    return kernels.of(x, "norm").rows(x, mean, rstd, weight, bias)


def rms_norm(x: Tensor, rstd: Tensor, weight: Tensor | None) -> Tensor:
    return kernels.of(x, "norm").rows(x, None, rstd, weight, None)


def batch_norm(
    x: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    return kernels.of(x, "norm").channels(x, *_by_channel(mean, invstd, weight, bias))


def batch_norm_relu(
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    origin: Tensor,
) -> Tensor:
    """Positive exactly where x is on the side on which BatchNorm's result is, zero elsewhere."""
    flip = torch.zeros_like(origin, dtype=torch.bool) if weight is None else weight < 0
    sides = origin.to(x.dtype), flip
    return kernels.of(x, "norm").channels(x, *_by_channel(mean, invstd, weight, bias), sides)


def _by_channel(
    mean: Tensor, invstd: Tensor, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Scale and shift."""
    scale = invstd if weight is None else invstd * weight
    return scale, -mean * scale if bias is None else bias - mean * scale


def group_norm(
    x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    shape = (*x.shape[:2], *(1 for _ in x.shape[2:]))
    each = x.shape[1] // mean.shape[-1]  # channels of a group
    mean, scale = (t.reshape(x.shape[0], -1).repeat_interleave(each, 1) for t in (mean, rstd))
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return torch.addcmul(shift.view(shape), x, scale.view(shape))


#: How many moments each has, behind its input.
MOMENTS: dict[Callable[..., Any], int] = {layer_norm: 2, rms_norm: 1, batch_norm: 2, group_norm: 2}
_NORMS = {Kind.ROW_NORM: layer_norm, Kind.BATCH_NORM: batch_norm, Kind.GROUP_NORM: group_norm}
