"""Integers in the fewest bits: launches of device/index.py; signatures as in reference/index.py."""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from actzip.kernels.errors import DamagedError
from actzip.kernels.reference.index import packed_size
from actzip.kernels.triton import launch
from actzip.kernels.triton.device import index as device


def extremes(x: Tensor) -> tuple[int, int]:
    both = torch.full((2,), torch.iinfo(torch.int64).max, device=x.device)
    both[1:].bitwise_not_()
    extremes_into(x, both)
    lo, hi = both.tolist()
    return lo, hi


def extremes_into(x: Tensor, both: Tensor) -> None:
    """`extremes` without the host's read: `both` comes with the largest and the least int64."""
    programs = -(-x.numel() // launch.TILE)
    launch.run(device.extremes, programs, x, both, x.numel(), SIZE=launch.TILE)


def encode(x: Tensor, lo: int, bits: int, data: Tensor) -> None:
    rows = launch.TILE // 32
    programs = -(-x.numel() // launch.TILE)
    given = (x, data, lo, bits, x.numel())
    launch.run(device.encode_index, programs, *given, ROWS=rows, WORD=_word(bits))


def decode(data: Tensor, lo: int, bits: int, out: Tensor) -> None:
    if not 1 <= bits <= 64 or data.numel() != packed_size(out.numel(), bits):
        raise DamagedError(
            f"{out.numel()} integers of {bits} bits cannot have {data.numel()} bytes"
        )
    programs = -(-out.numel() // launch.TILE)
    given = (data, out, lo, bits, out.numel())
    launch.run(device.decode_index, programs, *given, SIZE=launch.TILE, WORD=_word(bits))


def _word(bits: int) -> tl.dtype:
    return tl.uint32 if bits <= 32 else tl.uint64
