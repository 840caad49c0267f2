"""Where parts of a payload lie whose sizes are known on the device alone: chunks and blocks in
spans, spans in chains. Plain PyTorch ops on small tensors, without the host's read."""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import BLOCK, BLOCKS_PER_CHUNK, CHUNK, ChunkedLayout
from actzip.kernels.entropy_table import SPAN

CHUNKS = SPAN // CHUNK
BLOCKS = SPAN // BLOCK


def within(each: Tensor, many: int) -> tuple[Tensor, Tensor]:
    """Sums over so many that follow each other, and for each the sum of those before it there."""
    rows = torch.nn.functional.pad(each, (0, -each.numel() % many)).view(-1, many)
    return rows.sum(1), (rows.cumsum(1) - rows).view(-1)[: each.numel()]


def repeated(each: Tensor, many: int, count: int) -> Tensor:
    """What belongs to so many parts together, for each of `count` parts."""
    return each[:, None].expand(-1, many).reshape(-1)[:count]


def kept_of(raw: Tensor, layout: ChunkedLayout) -> tuple[Tensor, Tensor]:
    """Bytes of the raw blocks of each span, and for each block of those before it there."""
    lengths = layout.n - BLOCK * torch.arange(layout.blocks, device=raw.device)
    return within(lengths.clamp(max=BLOCK) * layout.itemsize * raw, BLOCKS)


def maps_of(raw: Tensor) -> Tensor:
    """A bit per block, eight bytes per chunk."""
    whole = torch.nn.functional.pad(raw, (0, -raw.numel() % BLOCKS_PER_CHUNK)).view(-1, 8)
    weights = 1 << torch.arange(8, device=raw.device)
    return (whole * weights).sum(1).to(torch.uint8)


def raw_of(maps: Tensor, layout: ChunkedLayout) -> tuple[Tensor, Tensor]:
    """A byte for each block, 1 for a raw one; whether the map names blocks that are not there."""
    flags = (maps[:, None] >> torch.arange(8, device=maps.device) & 1).view(-1)
    return flags[: layout.blocks].contiguous(), (flags[layout.blocks :] != 0).any()
