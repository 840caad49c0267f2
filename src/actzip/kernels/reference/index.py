"""Integers in the fewest bits, in plain PyTorch: the twin of csrc/exact/index.cpp.

x - min, `bits` bits each, as one dense stream: bit k of the stream is bit k % 8 of byte k / 8.
"""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.errors import DamagedError
from actzip.kernels.reference.slabs import LEAST


def packed_size(count: int, bits: int) -> int:
    return (count * bits + 7) // 8


def extremes(x: Tensor) -> tuple[int, int]:
    """The least and the largest value of a 1-D tensor that is not empty; one read by the host."""
    wide = [x.amin().to(torch.int64), x.amax().to(torch.int64)] if _has_amin(x) else _wide(x)
    lo, hi = torch.stack(wide).tolist()
    return lo, hi


def _has_amin(x: Tensor) -> bool:
    return x.dtype not in (torch.uint16, torch.uint32)


def _wide(x: Tensor) -> list[Tensor]:
    wide = x.to(torch.int64)
    return [wide.amin(), wide.amax()]


def _parts(n: int, bits: int, itemsize: int) -> range:
    """Where parts of n integers begin: at multiples of 8, fewer the more bits they have."""
    return range(0, n, max(LEAST // 8, n * itemsize // (16 * bits)) // 8 * 8)


def encode(x: Tensor, lo: int, bits: int, data: Tensor) -> None:
    """(x - lo) in `bits` (1 to 64) bits each; arithmetic modulo 2^64."""
    place = torch.arange(bits, device=x.device)
    weight = torch.arange(8, device=x.device, dtype=torch.uint8)
    starts = _parts(x.numel(), bits, x.element_size())
    for first in starts:
        part = x[first : first + starts.step]
        ones = ((part.to(torch.int64) - lo).view(-1, 1) >> place & 1).to(torch.uint8).view(-1)
        padded = torch.nn.functional.pad(ones, (0, -ones.numel() % 8)).view(-1, 8)
        begin = first * bits // 8
        data[begin : begin + padded.shape[0]] = (padded << weight).sum(1, dtype=torch.uint8)


def decode(data: Tensor, lo: int, bits: int, out: Tensor) -> None:
    if not 1 <= bits <= 64 or data.numel() != packed_size(out.numel(), bits):
        raise DamagedError(
            f"{out.numel()} integers of {bits} bits cannot have {data.numel()} bytes"
        )
    place = torch.arange(bits, device=data.device)
    weight = torch.arange(8, device=data.device, dtype=torch.uint8)
    starts = _parts(out.numel(), bits, out.element_size())
    for first in starts:
        count = min(starts.step, out.numel() - first)
        octets = data[first * bits // 8 : packed_size(first + count, bits)]
        ones = (octets.view(-1, 1) >> weight & 1).view(-1)[: count * bits].view(-1, bits)
        out[first : first + count] = ((ones.to(torch.int64) << place).sum(1) + lo).to(out.dtype)
