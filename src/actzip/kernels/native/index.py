"""Integers in the fewest bits: binding to csrc/exact/index.cpp; the twin of reference/index.py."""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.native.library import DTYPES, call, threads


def extremes(x: Tensor) -> tuple[int, int]:
    both = torch.empty(2, dtype=torch.int64)
    call("index_range", x, DTYPES[x.dtype], x.numel(), both, threads())
    lo, hi = both.tolist()
    return lo, hi


def encode(x: Tensor, lo: int, bits: int, data: Tensor) -> None:
    kind, count = DTYPES[x.dtype], x.numel()
    call("index_encode", x, kind, count, lo, bits, data, threads())


def decode(data: Tensor, lo: int, bits: int, out: Tensor) -> None:
    kind, count = DTYPES[out.dtype], out.numel()
    call("index_decode", data, out, kind, count, lo, bits, threads())
