"""Bit planes: binding to csrc/exact/planes.cpp; signatures as in reference/planes.py."""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.native.library import call, threads
from actzip.kernels.reference.planes import packed_size


def pack(codes: Tensor, bits: int) -> Tensor:
    data = torch.empty(packed_size(codes.numel(), bits), dtype=torch.uint8)
    call("planes_pack", codes, codes.numel(), bits, data, threads())
    return data


def unpack(data: Tensor, count: int, bits: int) -> Tensor:
    codes = torch.empty(count, dtype=torch.uint8)
    call("planes_unpack", data, count, bits, codes, threads())
    return codes
