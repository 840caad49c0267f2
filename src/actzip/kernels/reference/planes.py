"""Bit planes: how codes of 1 to 8 bits are stored, in plain PyTorch.

Blocks of 32 elements; a block of b-bit codes is b little-endian words of 32 bits, word j holding
bit j of every element, element i in bit i. The last block, of m < 32 elements, takes ceil(m / 8)
bytes per plane. One compare and one store make a plane with any vector instruction set, and all
widths are packed without waste.
"""

from __future__ import annotations

import torch
from torch import Tensor


def packed_size(count: int, bits: int) -> int:
    """Bytes that `count` codes of `bits` bits take."""
    return (count // 32 * 4 + (count % 32 + 7) // 8) * bits


def pack(codes: Tensor, bits: int) -> Tensor:
    """1-D uint8 codes to their planes."""
    whole = codes.numel() // 32 * 32
    parts = [_pack_blocks(codes[:whole].view(-1, 32), bits)]
    if whole < codes.numel():
        size = (codes.numel() - whole + 7) // 8 * 8
        tail = torch.zeros(1, size, dtype=torch.uint8, device=codes.device)
        tail[0, : codes.numel() - whole] = codes[whole:]
        parts.append(_pack_blocks(tail, bits))
    return torch.cat(parts)


def unpack(data: Tensor, count: int, bits: int) -> Tensor:
    """The first `count` codes in `data`, which holds exactly packed_size(count, bits) bytes."""
    whole = count // 32
    parts = [_unpack_blocks(data[: whole * 4 * bits].view(whole, bits, 4))]
    if count % 32:
        tail = data[whole * 4 * bits :].view(1, bits, (count % 32 + 7) // 8)
        parts.append(_unpack_blocks(tail)[: count % 32])
    return torch.cat(parts)


def _pack_blocks(codes: Tensor, bits: int) -> Tensor:
    n, width = codes.shape
    plane = torch.arange(bits, device=codes.device, dtype=torch.uint8).view(1, bits, 1, 1)
    place = torch.arange(8, device=codes.device, dtype=torch.uint8)
    ones = (codes.view(n, 1, width // 8, 8) >> plane) & 1
    return (ones << place).sum(-1, dtype=torch.uint8).flatten()


def _unpack_blocks(planes: Tensor) -> Tensor:
    n, bits, size = planes.shape
    place = torch.arange(8, device=planes.device, dtype=torch.uint8)
    ones = ((planes.view(n, bits, size, 1) >> place) & 1).view(n, bits, size * 8)
    plane = torch.arange(bits, device=planes.device, dtype=torch.uint8).view(1, bits, 1)
    return (ones << plane).sum(1, dtype=torch.uint8).flatten()
