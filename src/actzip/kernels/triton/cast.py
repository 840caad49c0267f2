"""Shorter floating types: launches of device/casts.py; signatures as in reference/cast.py."""

from __future__ import annotations

from torch import Tensor

from actzip.kernels.triton import launch
from actzip.kernels.triton.device import casts as device


def convert(source: Tensor, target: Tensor) -> None:
    """Rounded to nearest; a finite value never becomes infinity."""
    given = (launch.elements(source), launch.elements(target), source.numel())
    launch.run(device.convert, -(-source.numel() // launch.TILE), *given, SIZE=launch.TILE)
