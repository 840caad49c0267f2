"""Small tables on a device, kept: copying one there is a launch and a wait of its own."""

from __future__ import annotations

import functools

import torch
from torch import Tensor


def table(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """These numbers as a 1-D tensor that nobody writes to.

    On a CPU it is made anew: tables with bits for each sample are others in each step, and would
    sit between the free blocks of malloc's heap.
    """
    if device.type == "cpu":
        return torch.tensor(values, dtype=dtype)
    return _kept(values, dtype, device)


@functools.lru_cache(maxsize=256)
def _kept(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # for whoever asks next, in whatever mode
        return torch.tensor(values, dtype=dtype, device=device)
