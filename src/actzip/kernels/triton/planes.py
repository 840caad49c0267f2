"""Bit planes: launches of device/casts.py; signatures as in reference/planes.py."""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.reference.planes import packed_size
from actzip.kernels.triton import launch
from actzip.kernels.triton.device import casts as device


def pack(codes: Tensor, bits: int) -> Tensor:
    data = torch.empty(packed_size(codes.numel(), bits), dtype=torch.uint8, device=codes.device)
    pack_into(codes, bits, data)
    return data


def pack_into(codes: Tensor, bits: int, data: Tensor) -> None:
    """`pack` into bytes that are there, at a multiple of 4."""
    words = data[: data.numel() // 4 * 4].view(torch.int32)
    programs = -(-codes.numel() // launch.TILE)
    given = (codes, words, data, codes.numel())
    launch.run(device.pack, programs, *given, BITS=bits, BLOCKS=launch.TILE // 32)


def unpack(data: Tensor, count: int, bits: int) -> Tensor:
    codes = torch.empty(count, dtype=torch.uint8, device=data.device)
    unpack_into(data, bits, codes)
    return codes


def unpack_into(data: Tensor, bits: int, codes: Tensor) -> None:
    """`unpack` into codes that are there."""
    programs, n = -(-codes.numel() // launch.TILE), codes.numel()
    launch.run(device.unpack, programs, data, codes, n, BITS=bits, OCTETS=launch.TILE // 8)
