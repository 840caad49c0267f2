"""One bit per element: launches of device/mask.py; signatures as in reference/mask.py."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from actzip.kernels.errors import DamagedError
from actzip.kernels.triton import launch
from actzip.kernels.triton.device import mask as device

_VALUE, _NOT_LE_ZERO, _EQUALS_ON = 0, 1, 2
_INTS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@functools.lru_cache(maxsize=256)
def _bits(value: float, dtype: torch.dtype) -> int:
    return int(torch.tensor([value], dtype=dtype).view(_INTS[dtype.itemsize]).item())


def encode(x: Tensor, on: float | None, data: Tensor) -> int | Tensor:
    misfit = torch.zeros(1, dtype=torch.int32, device=x.device)
    encode_into(x, on, data, misfit)
    return 0 if on is None or x.dtype == torch.bool else misfit


def encode_into(x: Tensor, on: float | None, data: Tensor, misfit: Tensor) -> None:
    """`encode` without the host's read: `misfit` (int32) becomes 1 when a third value was met."""
    test, level, seen = _NOT_LE_ZERO, 0, launch.elements(x)
    if x.dtype == torch.bool:
        test, seen = _VALUE, x.view(torch.uint8)
    elif on is not None:
        test, level, seen = _EQUALS_ON, _bits(on, x.dtype), x.view(_INTS[x.element_size()])
    octets = launch.TILE // 8
    programs = -(-x.numel() // launch.TILE)
    given = (seen, data, misfit, level, x.numel())
    launch.run(device.encode_mask, programs, *given, OCTETS=octets, TEST=test)


def decode(data: Tensor, on: float | None, out: Tensor) -> None:
    if data.numel() != (out.numel() + 7) // 8:
        raise DamagedError(f"a mask of {out.numel()} bits cannot have {data.numel()} bytes")
    level = 1 if out.dtype == torch.bool else _bits(1.0 if on is None else on, out.dtype)
    given = (data, out.view(_INTS[out.element_size()]), level, out.numel())
    programs = -(-out.numel() // launch.TILE)
    launch.run(device.decode_mask, programs, *given, OCTETS=launch.TILE // 8)
