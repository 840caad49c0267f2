"""Places in windows: launches of device/window.py; signatures as in reference/window.py."""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.triton import launch
from actzip.kernels.triton.device import window as device


def encode(indices: Tensor, geometry: list[int], places: Tensor) -> int | Tensor:
    misfit = torch.zeros(1, dtype=torch.int32, device=indices.device)
    encode_into(indices, geometry, places, misfit)
    return misfit


def encode_into(indices: Tensor, geometry: list[int], places: Tensor, misfit: Tensor) -> None:
    """`encode` without the host's read: `misfit` (int32) becomes 1 when an index does not fit."""
    launch.run(device.encode_window, -(-indices.numel() // launch.TILE), indices, places, misfit,
               indices.numel(), SIZE=launch.TILE, GEOMETRY=tuple(geometry))  # fmt: skip


def decode(places: Tensor, geometry: list[int], indices: Tensor) -> int | Tensor:
    misfit = torch.zeros(1, dtype=torch.int32, device=indices.device)
    decode_into(places, geometry, indices, misfit)
    return misfit


def decode_into(places: Tensor, geometry: list[int], indices: Tensor, misfit: Tensor) -> None:
    """`decode` without the host's read: `misfit` (int32) becomes 1 when a place does not fit."""
    launch.run(device.decode_window, -(-indices.numel() // launch.TILE), places, indices, misfit,
               indices.numel(), SIZE=launch.TILE, GEOMETRY=tuple(geometry))  # fmt: skip
