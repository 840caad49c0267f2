"""Integers in the fewest bits, in plain PyTorch: the twin of csrc/exact/index.cpp.

x - min, `bits` bits each, as one dense stream: bit k of the stream is bit k % 8 of byte k / 8.
"""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.errors import DamagedError


def packed_size(count: int, bits: int) -> int:
    return (count * bits + 7) // 8


def extremes(x: Tensor) -> tuple[int, int]:
    """The least and the largest value of a 1-D tensor that is not empty."""
    wide = x.to(torch.int64)
    return int(wide.min()), int(wide.max())


def encode(x: Tensor, lo: int, bits: int, data: Tensor) -> None:
    """(x - lo) in `bits` (1 to 64) bits each; arithmetic modulo 2^64."""
    place = torch.arange(bits, device=x.device)
    ones = ((x.to(torch.int64) - lo).view(-1, 1) >> place & 1).to(torch.uint8).flatten()
    padded = torch.zeros(data.numel() * 8, dtype=torch.uint8, device=x.device)
    padded[: ones.numel()] = ones
    weight = torch.arange(8, device=x.device, dtype=torch.uint8)
    data.copy_((padded.view(-1, 8) << weight).sum(1, dtype=torch.uint8))


def decode(data: Tensor, lo: int, bits: int, out: Tensor) -> None:
    if not 1 <= bits <= 64 or data.numel() != packed_size(out.numel(), bits):
        raise DamagedError(
            f"{out.numel()} integers of {bits} bits cannot have {data.numel()} bytes"
        )
    weight = torch.arange(8, device=data.device, dtype=torch.uint8)
    ones = (data.view(-1, 1) >> weight & 1).flatten()[: out.numel() * bits].view(-1, bits)
    place = torch.arange(bits, device=data.device)
    values = (ones.to(torch.int64) << place).sum(1) + lo
    out.copy_(values.to(out.dtype))
