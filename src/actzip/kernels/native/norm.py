"""The results of norms: binding to csrc/norm/norm.cpp; signatures as in reference/norm.py."""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.native.library import DTYPES, call, threads
from actzip.kernels.reference import norm as reference
from actzip.kernels.reference.norm import real


def channels(
    x: Tensor, scale: Tensor, shift: Tensor, sides: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    inner = _inner(x)
    if inner is None or _is_graded(x) or not x.numel():
        return reference.channels(x, scale, shift, sides)
    out, none = torch.empty_like(x), x.new_empty(0)
    origin, flip = (none, none.bool()) if sides is None else sides
    table = [t.to(real(x.dtype)).contiguous() for t in (scale, shift, origin)]
    spec = (table[0], table[1], x.shape[1], inner, int(sides is not None), table[2])
    call("norm_channels", x, DTYPES[x.dtype], x.numel(), *spec, flip.contiguous(), out, threads())
    return out


def _is_graded(x: Tensor) -> bool:
    """Whether autograd shall tell the slopes: it sees nothing of what the library does."""
    return x.requires_grad and torch.is_grad_enabled()


def _inner(x: Tensor) -> int | None:
    """Elements of a channel that lie side by side; None if it is neither of the usual orders."""
    if x.dim() < 2:
        return None
    if x.is_contiguous():
        return x[0, 0].numel() if x.numel() else 1
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    last = last or (x.dim() == 5 and x.is_contiguous(memory_format=torch.channels_last_3d))
    return 1 if last else None


def rows(
    x: Tensor, mean: Tensor | None, rstd: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    if not x.is_contiguous() or _is_graded(x) or not x.numel():
        return reference.rows(x, mean, rstd, weight, bias)
    many = rstd.numel()
    out, none, as_real = torch.empty_like(x), x.new_empty(0), real(x.dtype)
    tables = [none if t is None else t.to(as_real).contiguous() for t in (mean, rstd, weight, bias)]
    call("norm_rows", x, DTYPES[x.dtype], many, x.numel() // many, *tables, out, threads())
    return out
