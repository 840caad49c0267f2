"""The results of norms: binding to csrc/norm/norm.cpp; signatures as in reference/norm.py."""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.native.library import DTYPES, call, threads
from actzip.kernels.norm_layout import inner_of, is_graded
from actzip.kernels.reference import norm as reference
from actzip.kernels.reference.norm import real


def channels(
    x: Tensor, scale: Tensor, shift: Tensor, sides: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    inner = inner_of(x)
    if inner is None or is_graded(x) or not x.numel():
        return reference.channels(x, scale, shift, sides)
    out, none = torch.empty_like(x), x.new_empty(0)
    origin, flip = (none, none) if sides is None else sides
    a, b, o, f = (t.to(real(x.dtype)).contiguous() for t in (scale, shift, origin, flip))
    spec = (a, b, x.shape[1], inner, int(sides is not None), o, f)
    call("norm_channels", x, DTYPES[x.dtype], x.numel(), *spec, out, threads())
    return out


def rows(
    x: Tensor, mean: Tensor | None, rstd: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    if not x.is_contiguous() or is_graded(x) or not x.numel():
        return reference.rows(x, mean, rstd, weight, bias)
    many = rstd.numel()
    out, none, as_real = torch.empty_like(x), x.new_empty(0), real(x.dtype)
    tables = [none if t is None else t.to(as_real).contiguous() for t in (mean, rstd, weight, bias)]
    call("norm_rows", x, DTYPES[x.dtype], many, x.numel() // many, *tables, out, threads())
    return out
