"""Places in windows: binding to csrc/exact/window.cpp; signatures as in reference/window.py."""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.errors import DamagedError
from actzip.kernels.native.library import call, threads


def encode(indices: Tensor, geometry: list[int], places: Tensor) -> int:
    shape = torch.tensor(geometry, dtype=torch.int64)
    try:
        call("window_encode", indices, indices.numel(), shape, places, threads())
    except ValueError:
        return 1
    return 0


def decode(places: Tensor, geometry: list[int], indices: Tensor) -> int:
    shape = torch.tensor(geometry, dtype=torch.int64)
    try:
        call("window_decode", places, indices.numel(), shape, indices, threads())
    except DamagedError:
        return 1
    return 0
