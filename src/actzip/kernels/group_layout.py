"""Where things are in a group payload: shared by the codec and both backends.

A tensor is `samples` rows of n elements; groups and blocks of 32 start afresh in each row.
Payload: metadata of all groups (all least values, then all steps) | codes of row 0 | codes of
row 1 | … | the elements of raw groups, in order.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from actzip.kernels.reference.planes import packed_size

#: How codes are rounded, by the numbers of csrc/group/group.cpp.
ROUNDING = {"nearest": 0, "stochastic": 1, "dither": 2}


@dataclass(frozen=True)
class GroupLayout:
    samples: int
    n: int  #: elements of a row
    group: int
    bits: tuple[int, ...]  #: of each row
    rounding: int
    zero: bool
    dtype: torch.dtype

    @property
    def groups(self) -> int:
        """Groups of one row."""
        return -(-self.n // self.group)

    @property
    def meta_item(self) -> int:
        """Bytes of a stored least value or step: the upper half of the computing type."""
        return 4 if self.dtype == torch.float64 else 2

    @functools.cached_property
    def offsets(self) -> list[int]:
        """Where each row's codes start, and where the last row's end."""
        at = [2 * self.samples * self.groups * self.meta_item]
        for bits in self.bits:
            at.append(at[-1] + packed_size(self.n, bits))
        return at

    @functools.cached_property
    def tables(self) -> tuple[Tensor, Tensor]:
        """Bits and offsets of the rows as the C++ library reads them.

        Layouts with one number of bits repeat in every step and are kept, and this with them. Those
        with bits for each sample are not: tables that stay for long would sit between the free
        blocks of malloc's heap, which then never come together again.
        """
        bits = torch.tensor(self.bits, dtype=torch.uint8)
        return bits, torch.tensor(self.offsets, dtype=torch.int64)

    @staticmethod
    def of(
        samples: int, n: int, group: int, bits: tuple[int, ...], rounding: str, zero: bool,
        dtype: torch.dtype,
    ) -> GroupLayout:  # fmt: skip
        """Groups of so many elements; no larger than a row, up to a block of 32, needs them."""
        group = min(group, max(32, -(-n // 32) * 32))
        return GroupLayout(samples, n, group, bits, ROUNDING[rounding], zero, dtype)

    def levels(self, bits: int) -> int:
        """The largest code, counted from the one that stands for the least value."""
        return (1 << bits) - (2 if self.zero else 1)
