"""Blocks of 64 values that are stored as they are, in formats with spans."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from actzip.kernels.bounded_layout import BLOCK, BLOCKS_PER_CHUNK, ChunkedLayout
from actzip.kernels.entropy_table import SPAN
from actzip.kernels.errors import DamagedError
from actzip.kernels.reference.bounded_symbols import padded

Which = npt.NDArray[np.bool_]
_PER_SPAN = SPAN // BLOCK


def bitmap(raw: Tensor) -> Tensor:
    """Eight bytes for each chunk, a bit for each block."""
    bits = padded(raw, BLOCKS_PER_CHUNK).view(-1, 8, 8).long()
    return (bits << torch.arange(8, device=raw.device)).sum(2).view(-1).to(torch.uint8)


def from_bitmap(octets: Tensor, layout: ChunkedLayout, form: str) -> Which:
    """Which blocks are raw."""
    raw = np.unpackbits(octets.cpu().numpy(), bitorder="little").astype(bool)
    if raw[layout.blocks :].any():
        raise DamagedError(f"{form}: the stored bytes are damaged")
    return raw[: layout.blocks]


def values_of(x: Tensor, raw: Tensor) -> bytes:
    """The values of the raw blocks of a part, which ends with x."""
    there = raw.cpu().numpy()
    if not there.any():
        return b""
    joined: bytes = padded(x, BLOCK).view(torch.uint8).cpu().numpy()[there].tobytes()
    missing = -x.numel() % BLOCK * int(there[-1])
    return joined[: len(joined) - missing * x.element_size()]


def sizes(raw: Which, layout: ChunkedLayout) -> list[int]:
    """Bytes of the raw blocks of each span."""
    found = []
    for first in range(0, layout.blocks, _PER_SPAN):
        values = BLOCK * int(raw[first : first + _PER_SPAN].sum())
        if first + _PER_SPAN >= layout.blocks and raw[-1]:
            values -= layout.blocks * BLOCK - layout.n
        found.append(values * layout.itemsize)
    return found


def put_back(values: Tensor, raw: Which, part: ChunkedLayout, body: Tensor, begin: int) -> Tensor:
    """A part's values with those of its raw blocks in their places.

    raw: of the whole tensor. begin: where in `body` the raw blocks of the part's span are.
    """
    block = part.first // BLOCK
    here = raw[block : block + part.blocks]
    if not here.any():
        return values
    begin += int(raw[block // _PER_SPAN * _PER_SPAN : block].sum()) * BLOCK * part.itemsize
    kept = body[begin : begin + int(here.sum()) * BLOCK * part.itemsize]  # the last may be short
    rows = padded(values, BLOCK)
    rows[torch.from_numpy(here).to(rows.device)] = padded(kept.clone().view(part.dtype), BLOCK)
    return rows.view(-1)[: part.n]
