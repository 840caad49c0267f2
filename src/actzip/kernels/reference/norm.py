"""The results of norms, made again from their inputs and moments, in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor


def real(dtype: torch.dtype) -> torch.dtype:
    """What is computed in: single precision, double for double."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def channels(
    x: Tensor, scale: Tensor, shift: Tensor, sides: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """x·scale + shift, dimension 1 having the channels; with `sides`, origins and where the scale
    is negative, of a ReLU's result: zero on one side of the origin, positive on the other."""
    shape = (1, -1, *(1 for _ in x.shape[2:]))
    y = torch.mul(x, scale.view(shape)).add_(shift.view(shape))
    if sides is None:
        return y.to(x.dtype)
    origin, flip = sides
    off = (x <= origin.view(shape)).logical_xor_(flip.view(shape))
    # in place: a backward pass has its peak where such a tensor is made
    return y.clamp_(min=torch.finfo(x.dtype).tiny).masked_fill_(off, 0).to(x.dtype)


def rows(
    x: Tensor, mean: Tensor | None, rstd: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    """(x - mean)·rstd·weight + bias; a mean and a deviation for each row of whole columns."""
    y = x.to(rstd.dtype) if mean is None else x - mean
    y = y * rstd
    y = y if weight is None else y.mul_(weight)
    y = y if bias is None else y.add_(bias)
    return y.to(x.dtype)
