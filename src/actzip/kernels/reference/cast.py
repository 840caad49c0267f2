"""The same numbers in another floating type, in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor


def convert(source: Tensor, target: Tensor) -> None:
    """Rounded to nearest; a finite value never becomes infinity."""
    target.copy_(source)
    top = torch.finfo(target.dtype).max
    if torch.finfo(source.dtype).max > top:
        lost = torch.isinf(target) & torch.isfinite(source)
        if bool(lost.any()):
            target[lost] = torch.full_like(target[lost], top).copysign(target[lost])
