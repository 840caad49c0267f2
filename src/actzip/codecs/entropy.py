"""The entropy stage: a second, exact step for codecs whose codes are bytes.

A codec that has packed or could pack its codes into `plain` bytes asks::

    coded = entropy_encode(codes, plain, allocate)   # None: plain packing is not longer, use that
    entropy_decode(coded, out)                       # out: uint8, as many as there were codes

One table of frequencies per payload; chains of spans of 65536 codes, coded and decoded in parallel,
with 32 interleaved range-ANS states each; the bytes are the same on every backend and thread count.
Bounded has its own form of it (codes larger than a byte): kernels/bounded_entropy_layout.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from actzip import kernels
from actzip.codecs.payload import Allocate, fresh
from actzip.kernels.entropy_table import Table, coded_bits


def entropy_encode(codes: Tensor, plain: int, allocate: Allocate = fresh) -> Tensor | None:
    """The coded bytes of a flat uint8 tensor, or None when they would not be under `plain`."""
    if codes.dtype != torch.uint8 or codes.dim() != 1:
        raise TypeError(
            f"entropy_encode needs a flat uint8 tensor of codes, got {codes.dtype} of shape "
            f"{tuple(codes.shape)}; flatten it, and store wider integers with Index()"
        )
    kernel = kernels.of(codes, "entropy")
    counts = kernel.count(codes)
    table = Table.of(counts)
    if table.overhead(codes.numel()) + coded_bits(counts, table.frequencies) / 8 >= plain:
        return None
    data: Tensor = kernel.encode(codes, table, lambda n: allocate(n, codes.device))
    return data if data.numel() < plain else None


def entropy_decode(data: Tensor, out: Tensor) -> None:
    """Decode into `out`; a DamagedError for bytes that no encoder writes."""
    kernels.of(out, "entropy").decode(data, out)
