"""Bytes of different counts to and from places that only the device knows.

The last byte of `body` is nobody's: what is not wanted is written to it, what is not there is read
from it.
"""

from __future__ import annotations

import torch
from torch import Tensor


def put(body: Tensor, starts: Tensor, octets: Tensor, counts: Tensor) -> None:
    """The first `counts` bytes of each row to where it starts."""
    column = torch.arange(octets.shape[-1], device=body.device)
    wanted = column < counts.unsqueeze(-1)
    body[torch.where(wanted, starts.unsqueeze(-1) + column, body.numel() - 1)] = octets


def take(body: Tensor, starts: Tensor, count: int) -> Tensor:
    """`count` bytes from each start."""
    place = starts.unsqueeze(-1) + torch.arange(count, device=body.device)
    inside = (place >= 0) & (place < body.numel())
    return body[torch.where(inside, place, body.numel() - 1)]


def put_codes(codes: Tensor, position: Tensor, size: int, width: int) -> Tensor:
    """(…, size) bytes with each row's codes at these bits, of at most `width` bits each."""
    spread = -(-(width + 7) // 8)
    shifted = codes << position % 8
    shape = (*codes.shape[:-1], size + spread)
    stream = torch.zeros(shape, dtype=torch.int64, device=codes.device)
    for byte in range(spread):
        stream.scatter_add_(-1, position // 8 + byte, shifted >> 8 * byte & 255)
    return stream[..., :size].to(torch.uint8)


def take_codes(body: Tensor, starts: Tensor, position: Tensor, widths: Tensor, most: int) -> Tensor:
    """Codes of these widths, at most `most`, at these bits behind where each row starts."""
    first, bits = starts.unsqueeze(-1) + position // 8, torch.zeros_like(position)
    for byte in range(-(-(most + 7) // 8)):
        bits |= take(body, first + byte, 1).squeeze(-1).long() << 8 * byte
    return bits >> position % 8 & (1 << widths) - 1
