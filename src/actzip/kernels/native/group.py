"""Group codes: binding to csrc/group/group.cpp; signatures as in reference/group.py."""

from __future__ import annotations

from torch import Tensor

from actzip.kernels.group_layout import GroupLayout
from actzip.kernels.native.library import DTYPES, call, signed, threads


def encode(x: Tensor, layout: GroupLayout, seed: int | Tensor, data: Tensor) -> int:
    bits, offsets = layout.tables
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
    bits, offsets = layout.tables
    sizes = (layout.samples, layout.n, layout.group)
    call("group_raw", x, DTYPES[x.dtype], *sizes, bits, offsets, data)


def decode(
    data: Tensor, layout: GroupLayout, seed: int | Tensor, out: Tensor, trusted: bool = False
) -> None:
    bits, offsets = layout.tables
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
    bits, offsets = layout.tables
    sizes = (layout.samples, layout.n, layout.group, layout.meta_item)
    kind, count = DTYPES[out.dtype], threads()
    call("group_nonzero", data, out, kind, *sizes, bits, offsets, count)
