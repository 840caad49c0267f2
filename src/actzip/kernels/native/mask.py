"""One bit per element: binding to csrc/exact/mask.cpp; signatures as in reference/mask.py."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from actzip.kernels.native.library import DTYPES, call, threads

_NONZERO, _NOT_LE_ZERO, _EQUALS_ON = 0, 1, 2
_INTS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@functools.lru_cache(maxsize=256)
def _raw_bits(value: float, dtype: torch.dtype) -> int:
    one = torch.tensor([float(value)], dtype=dtype)
    return int(one.view(_INTS[dtype.itemsize]).item())


def encode(x: Tensor, on: float | None, data: Tensor) -> int:
    test, bits = _NONZERO, 0
    if x.dtype != torch.bool:
        test = _NOT_LE_ZERO if on is None else _EQUALS_ON
        bits = 0 if on is None else _raw_bits(on, x.dtype)
    try:
        call("mask_encode", x, DTYPES[x.dtype], x.numel(), test, bits, data, threads())
    except ValueError:
        if on is None:
            raise
        return 1
    return 0


def decode(data: Tensor, on: float | None, out: Tensor) -> None:
    bits = 1 if out.dtype == torch.bool else _raw_bits(1.0 if on is None else on, out.dtype)
    dtype, count = DTYPES[out.dtype], out.numel()
    call("mask_decode", data, out, dtype, count, bits, threads())
