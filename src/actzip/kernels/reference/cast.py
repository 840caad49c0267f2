"""The same numbers in another floating type, in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.reference.slabs import spans


def convert(source: Tensor, target: Tensor) -> None:
    """Rounded to nearest; a finite value never becomes infinity."""
    target.copy_(source)
    top = torch.finfo(target.dtype).max
    if torch.finfo(source.dtype).max > top:
        for span in spans(source.numel(), source.element_size()):
            part = target[span]
            lost = torch.isinf(part) & torch.isfinite(source[span])
            part.copy_(torch.where(lost, part.clamp(-top, top), part))
