"""Bit planes: how codes of 1 to 8 bits are stored, in plain PyTorch.

Blocks of 32 elements; a block of b-bit codes is b little-endian words of 32 bits, word j holding
bit j of every element, element i in bit i. The last block, of m < 32 elements, takes ceil(m / 8)
bytes per plane. One compare and one store make a plane with any vector instruction set, and all
widths are packed without waste.
"""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.reference.tables import table


def packed_size(count: int, bits: int) -> int:
    """Bytes that `count` codes of `bits` bits take."""
    return (count // 32 * 4 + (count % 32 + 7) // 8) * bits


def pack(codes: Tensor, bits: int) -> Tensor:
    """1-D uint8 codes to their planes."""
    return _pack(codes.view(1, -1), bits).view(-1)


def unpack(data: Tensor, count: int, bits: int) -> Tensor:
    """The first `count` codes in `data`, which holds exactly packed_size(count, bits) bytes."""
    return _unpack(data.view(1, -1), count, bits).view(-1)


def pack_rows(codes: Tensor, bits: tuple[int, ...]) -> Tensor:
    """The planes of each row, of its own number of bits, one row after the other."""
    most = max(bits)
    packed = _pack(codes, most)
    if min(bits) == most:
        return packed.view(-1)
    row, place, row_bits = _bytes_of_rows(codes.shape[1], bits, codes.device)
    blocks = codes.shape[1] // 32 * 4
    block, inner = place // (4 * row_bits), place % (4 * row_bits)
    whole = place < blocks * row_bits
    found = torch.where(whole, block * 4 * most + inner, place - blocks * row_bits + blocks * most)
    return packed.view(-1)[found + row * packed.shape[1]]


def unpack_rows(data: Tensor, count: int, bits: tuple[int, ...]) -> Tensor:
    """(rows, count) codes from what `pack_rows` wrote."""
    most = max(bits)
    if min(bits) == most:
        return _unpack(data.view(len(bits), -1), count, most)
    row_bits = table(bits, torch.int64, data.device).view(-1, 1)
    starts = table(_starts(count, bits)[:-1], torch.int64, data.device).view(-1, 1)
    blocks, size = count // 32 * 4, (count % 32 + 7) // 8
    place = torch.arange(packed_size(count, most), device=data.device)
    block, inner = place // (4 * most), place % (4 * most)
    whole, tail = place < blocks * most, place - blocks * most
    found = torch.where(whole, block * 4 * row_bits + inner, blocks * row_bits + tail)
    there = torch.where(whole, inner < 4 * row_bits, tail < size * row_bits)
    found = torch.where(there, found + starts, torch.zeros_like(found))
    planes = torch.where(there, data[found], torch.zeros((), dtype=torch.uint8, device=data.device))
    return _unpack(planes, count, most)


def _starts(count: int, bits: tuple[int, ...]) -> tuple[int, ...]:
    """Where each row's planes begin, and where the last row's end."""
    at = [0]
    for b in bits:
        at.append(at[-1] + packed_size(count, b))
    return tuple(at)


def _bytes_of_rows(
    count: int, bits: tuple[int, ...], device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """For each packed byte its row, its place within that row, and the row's bits."""
    starts = table(_starts(count, bits), torch.int64, device)
    at = torch.arange(_starts(count, bits)[-1], device=device)
    row = torch.searchsorted(starts, at, right=True) - 1
    return row, at - starts[row], table(bits, torch.int64, device)[row]


def _pack(codes: Tensor, bits: int) -> Tensor:
    """(rows, count) codes to (rows, packed_size)."""
    rows, count = codes.shape
    whole = count // 32 * 32
    parts = [_pack_blocks(codes[:, :whole].reshape(rows, -1, 32), bits)]
    if whole < count:
        size = (count - whole + 7) // 8 * 8
        tail = torch.zeros(rows, 1, size, dtype=torch.uint8, device=codes.device)
        tail[:, 0, : count - whole] = codes[:, whole:]
        parts.append(_pack_blocks(tail, bits))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _unpack(data: Tensor, count: int, bits: int) -> Tensor:
    rows, whole = data.shape[0], count // 32
    parts = [_unpack_blocks(data[:, : whole * 4 * bits].reshape(rows, whole, bits, 4))]
    if count % 32:
        tail = data[:, whole * 4 * bits :].reshape(rows, 1, bits, (count % 32 + 7) // 8)
        parts.append(_unpack_blocks(tail)[:, : count % 32])
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _pack_blocks(codes: Tensor, bits: int) -> Tensor:
    rows, n, width = codes.shape
    octets = codes.view(rows, n, width // 8, 8)
    place = table(tuple(range(8)), torch.uint8, codes.device)
    planes = [
        (octets >> bit).bitwise_and_(1).bitwise_left_shift_(place).sum(-1, dtype=torch.uint8)
        for bit in range(bits)
    ]
    return torch.stack(planes, 2).view(rows, -1)


def _unpack_blocks(planes: Tensor) -> Tensor:
    rows, n, bits, size = planes.shape
    place = table(tuple(range(8)), torch.uint8, planes.device)
    codes = torch.zeros(rows, n, size, 8, dtype=torch.uint8, device=planes.device)
    for bit in range(bits):
        ones = (planes[:, :, bit, :, None] >> place).bitwise_and_(1)
        codes.bitwise_or_(ones.bitwise_left_shift_(bit))
    return codes.view(rows, n * size * 8)
