"""Group codes: binding to csrc/group/group.cpp; signatures as in reference/group.py."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from actzip.kernels.group_layout import GroupLayout
from actzip.kernels.native.library import DTYPES, call, signed, threads


def tables(layout: GroupLayout) -> tuple[Tensor, Tensor]:
    """Bits and offsets of the rows as the library reads them.

    Layouts with one number of bits repeat in every step and are kept. Those with bits for each
    sample do not: kept for long, they would sit between the free blocks of malloc's heap, which
    then never come together again.
    """
    return _kept(layout) if len(set(layout.bits)) <= 1 else _made(layout)


def _made(layout: GroupLayout) -> tuple[Tensor, Tensor]:
    bits = torch.tensor(layout.bits, dtype=torch.uint8)
    return bits, torch.tensor(layout.offsets, dtype=torch.int64)


_kept = functools.lru_cache(maxsize=1024)(_made)


def encode(x: Tensor, layout: GroupLayout, seed: int | Tensor, data: Tensor) -> int:
    bits, offsets = tables(layout)
    return call(
        "group_encode",
        x,
        DTYPES[x.dtype],
        layout.samples,
        layout.n,
        layout.group,
        bits,
        offsets,
        layout.rounding,
        layout.zero,
        signed(seed),
        data,
        threads(),
    )


def store_raw(x: Tensor, layout: GroupLayout, data: Tensor) -> None:
    bits, offsets = tables(layout)
    sizes = (layout.samples, layout.n, layout.group)
    call("group_raw", x, DTYPES[x.dtype], *sizes, bits, offsets, data)


def decode(
    data: Tensor, layout: GroupLayout, seed: int | Tensor, out: Tensor, trusted: bool = False
) -> None:
    bits, offsets = tables(layout)
    call(
        "group_decode",
        data,
        out,
        DTYPES[out.dtype],
        layout.samples,
        layout.n,
        layout.group,
        bits,
        offsets,
        layout.rounding,
        layout.zero,
        signed(seed),
        threads(),
    )


def nonzero(data: Tensor, layout: GroupLayout, out: Tensor) -> None:
    bits, offsets = tables(layout)
    sizes = (layout.samples, layout.n, layout.group, layout.meta_item)
    kind, count = DTYPES[out.dtype], threads()
    call("group_nonzero", data, out, kind, *sizes, bits, offsets, count)
