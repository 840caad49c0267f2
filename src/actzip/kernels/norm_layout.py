"""What kernels of norms need to know about a tensor: shared by the backends that have some."""

from __future__ import annotations

import torch
from torch import Tensor


def is_graded(x: Tensor) -> bool:
    """Whether autograd shall tell the slopes: it sees nothing of what a kernel of ours does."""
    return x.requires_grad and torch.is_grad_enabled()


def inner_of(x: Tensor) -> int | None:
    """Elements of a channel that lie side by side; None if it is neither of the usual orders."""
    if x.dim() < 2:
        return None
    if x.is_contiguous():
        return x[0, 0].numel() if x.numel() else 1
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    last = last or (x.dim() == 5 and x.is_contiguous(memory_format=torch.channels_last_3d))
    return 1 if last else None
