"""What the group codes promise, computed from a tensor without encoding it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from actzip.codecs.memory_order import dense, dense_view, overlaps, unexpand
from actzip.kernels.dual_layout import DualLayout
from actzip.kernels.group_layout import ROUNDING, GroupLayout
from actzip.kernels.reference import dual, group
from actzip.kernels.reference.metadata import REAL, real_type

#: Rounding of the few operations of a code, as a fraction of the step: codes are below 256.
_SLACK = 2.0**-12


def placed(
    x: Tensor, logical: bool, values: Callable[[Tensor], Tensor], leading: int = 0
) -> Tensor:
    """values(elements in the codec's order), put back to where the elements are in x."""
    seen = dense(x, logical=logical, leading=leading)
    result = values(seen).view(seen.shape)
    if overlaps(x):
        return result.view(x.shape)
    out = torch.empty_strided(x.shape, x.stride(), dtype=result.dtype, device=x.device)
    target = unexpand(out)
    view = dense_view(target, logical=logical, leading=leading)
    (target if view is None else view).copy_(result)
    return out


def group_bounds(x: Tensor, layout: GroupLayout) -> Tensor:
    """The largest error of each element of a 1-D tensor, in the computing type."""
    if x.numel() == 0:
        return x.to(real_type(x.dtype))
    meta = group.measure(x, layout)
    step = group.per_element(meta.step, layout).flatten()
    lo = group.per_element(meta.lo, layout).flatten()
    wide = x.to(step.dtype)
    share = 1.0 if layout.rounding == ROUNDING["stochastic"] else 0.5
    size = torch.maximum(wide.abs(), lo.abs())
    bound = step * (share + _SLACK) + (size + step) * 2 * torch.finfo(x.dtype).eps
    bound = bound + 2 * group.TINY[x.dtype]
    if layout.zero:
        single = torch.tensor([b == 1 for b in layout.bits], device=x.device)
        alone = single.repeat_interleave(layout.n)
        bound = torch.where(alone, _half_range(x, layout) + lo.abs() / 128 + bound, bound)
        bound = torch.where(wide == 0, torch.zeros_like(bound), bound)
    return torch.where(_raw(meta.raw, layout), torch.zeros_like(bound), bound)


def group_variance(x: Tensor, layout: GroupLayout) -> float:
    if x.numel() == 0:
        return 0.0
    meta = group.measure(x, layout)
    step = group.per_element(meta.step, layout).flatten().double()
    each = step.square() / 12
    if layout.rounding == ROUNDING["stochastic"]:
        lo = group.per_element(meta.lo, layout).flatten().double()
        t = (x.double() - lo) / step.clamp(min=torch.finfo(torch.float64).tiny)
        fraction = t - t.floor()
        each = step.square() * fraction * (1 - fraction)
    if layout.zero:
        each = torch.where(x == 0, torch.zeros_like(each), each)
    each = torch.where(_raw(meta.raw, layout), torch.zeros_like(each), each)
    return float(each.mean())


def dual_bounds(x: Tensor, layout: DualLayout) -> Tensor:
    """The largest error of each element of a 1-D tensor of maps."""
    rest = dual.residual(x, layout)
    bound = group_bounds(rest, replace(layout.rest, dtype=rest.dtype))
    raw = ~(rest.isfinite() & x.isfinite())
    # the sum of code and average, and its rounding to the dtype
    size = x.to(rest.dtype).abs() + rest.abs() + bound
    bound = bound + size * 2 * torch.finfo(x.dtype).eps + 2 * group.TINY[x.dtype]
    return torch.where(raw | (bound == 0), torch.zeros_like(bound), bound)


def dual_variance(x: Tensor, layout: DualLayout) -> float:
    rest = dual.residual(x, layout)
    return group_variance(rest, replace(layout.rest, dtype=rest.dtype))


def _raw(raw: Tensor, layout: GroupLayout) -> Tensor:
    return group.per_element(raw, layout).flatten()


def _half_range(x: Tensor, layout: GroupLayout) -> Tensor:
    """Half the range of the non-zero values: what one code for all of them may be off by."""
    wider = replace(layout, bits=tuple(2 for _ in layout.bits))
    step = group.per_element(group.measure(x, wider).step, layout).flatten()
    return step + REAL[step.dtype].smallest
