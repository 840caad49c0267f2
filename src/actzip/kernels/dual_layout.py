"""Where things are in a Dual payload: shared by the codec and both backends.

Payload: averages of all maps | group payload (layout.py) of what is left, a map being a group.

Maps lie one after the other in memory, or, with `channels`, side by side: then a sample is a row
of the group payload and its codes are in the order of memory, metadata is in the order of maps as
ever, and an average has those of the other channels of its block beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from actzip.kernels.group_layout import ROUNDING, GroupLayout


@dataclass(frozen=True)
class Axis:
    """One dimension of a map, cut into blocks.

    Aligned: ceil(size / block) blocks, the last may be short. Original: floor(size / k) blocks of
    k = min(block, size), stretched over the whole dimension.
    """

    size: int
    block: int
    original: bool

    @property
    def k(self) -> int:
        return min(self.block, self.size)

    @property
    def blocks(self) -> int:
        return self.size // self.k if self.original else -(-self.size // self.k)

    def span(self, b: int) -> range:
        """The positions that block b averages."""
        return range(b * self.k, min(self.size, (b + 1) * self.k))

    def block_of(self, i: int) -> int:
        """The block whose average stands at position i."""
        return i * self.blocks // self.size if self.original else i // self.k


@dataclass(frozen=True)
class DualLayout:
    maps: int
    axes: tuple[Axis, Axis, Axis]  #: depth, height, width; size 1 where there is none
    rest: GroupLayout
    channels: int = 0  #: of a sample, innermost in memory; 0: each map is a stretch of memory

    @staticmethod
    def of(
        before: int, sizes: Sequence[int], after: int, block: int, bits: int, original: bool,
        rounding: str, zero: bool, dtype: torch.dtype,
    ) -> DualLayout:  # fmt: skip
        """Of a dense tensor (maps before, depth, height, width, maps side by side)."""
        depth, height, width = (Axis(max(1, size), block, original) for size in sizes)
        size = depth.size * height.size * width.size
        maps = before * math.prod(sizes) * after // size
        how = ROUNDING[rounding]
        if after <= 1 or not maps:
            rest = GroupLayout(1, maps * size, size, (bits,), how, zero, dtype)
            return DualLayout(maps, (depth, height, width), rest)
        rest = GroupLayout(before, size * after, size, (bits,) * before, how, zero, dtype)
        return DualLayout(maps, (depth, height, width), rest, after)

    @property
    def size(self) -> int:
        """Elements of one map."""
        return math.prod(axis.size for axis in self.axes)

    @property
    def one_by_one(self) -> GroupLayout:
        """The layout of what is left when the maps lie one after the other."""
        bits = self.rest.bits[:1]
        return replace(self.rest, samples=1, n=self.maps * self.size, group=self.size, bits=bits)

    @property
    def averages(self) -> int:
        """Averages of one map."""
        return math.prod(axis.blocks for axis in self.axes)

    @property
    def averages_size(self) -> int:
        """Bytes of all averages."""
        return self.maps * self.averages * self.rest.meta_item
