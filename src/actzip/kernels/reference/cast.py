"""The same numbers in another floating type, in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.reference.slabs import spans


def convert(source: Tensor, target: Tensor) -> None:
    """Rounded to nearest; a finite value never becomes infinity."""
    top = torch.finfo(target.dtype).max
    if torch.finfo(source.dtype).max <= top:
        target.copy_(source)
        return
    for span in spans(source.numel(), source.element_size()):
        part = source[span]
        if part.element_size() == 2:  # whose numbers may have no `top` among them
            part = part.float()
        target[span].copy_(torch.where(torch.isinf(part), part, part.clamp(-top, top)))
