"""Memory that an op takes while it runs, beside what it is given and what it gives back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten


def workspace(func: Any, args: tuple[Any, ...], made: list[Tensor]) -> int:
    """Bytes of it on a CPU, about."""
    if func is _aten.convolution.default:
        return _copied(args[0]) + _copied(made[0])
    if func is _aten.convolution_backward.default:
        return _copied(args[0]) + _copied(args[1])
    return 0


_BLOCK = 8  #: channels from which on oneDNN lays pictures out in blocks of its own


def _copied(t: Tensor) -> int:
    """oneDNN brings channels-first pictures into blocks, in a copy; channels last it reads."""
    nhwc = t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last)
    if t.dim() < 3 or t.shape[1] < _BLOCK or (nhwc and not t.is_contiguous()):
        return 0
    return t.numel() * t.element_size()
