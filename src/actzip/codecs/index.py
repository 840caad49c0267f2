"""Index: integers, exactly, in the fewest bits that hold their range."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from actzip import kernels
from actzip.codecs.base import Codec
from actzip.codecs.payload import Allocate, Coded, Payload, PayloadError
from actzip.codecs.registry import register

#: least value, bits per element
_PREFIX = struct.Struct("<qB")


@register
@dataclass(frozen=True)
class Index(Codec):
    """Any integer tensor comes back exactly.

    An element takes the bits of (largest - least value): none at all for a constant, 4 for a
    position in a 3 by 3 window; a prefix of 9 bytes says which.
    """

    exact: ClassVar[bool] = True

    def check(self, x: Tensor) -> None:
        if x.dtype.is_floating_point or x.dtype.is_complex or x.dtype == torch.bool:
            raise TypeError(
                f"Index needs an integer tensor, got {x.dtype} of shape {tuple(x.shape)}; use "
                "BitMask() for bool, Keep() to store anything exactly"
            )

    def least_bytes(self, x: Tensor) -> int:
        return _PREFIX.size

    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Coded:
        flat = _signed(x.view(-1))
        kernel = kernels.of(x, "index")
        lo, hi = kernel.extremes(flat) if flat.numel() else (0, 0)
        bits = (hi - lo).bit_length()
        data = allocate(_PREFIX.size + (flat.numel() * bits + 7) // 8, x.device)
        prefix = torch.frombuffer(bytearray(_PREFIX.pack(lo, bits)), dtype=torch.uint8)
        data[: _PREFIX.size] = prefix.to(x.device)
        if bits and flat.numel():
            kernel.encode(flat, lo, bits, data[_PREFIX.size :])
        return Coded(data, known=(lo, bits))

    def _decode(self, payload: Payload, out: Tensor) -> None:
        data = payload.data
        if data.numel() < _PREFIX.size:
            raise PayloadError(f"an Index payload has at least 9 bytes, got {data.numel()}")
        lo, bits = payload.known or _PREFIX.unpack(bytes(data[: _PREFIX.size].tolist()))
        flat = _signed(out.view(-1))
        if bits == 0 or flat.numel() == 0:
            if data.numel() != _PREFIX.size:
                raise PayloadError(f"a constant takes 9 bytes, got {data.numel()}")
            flat.copy_(torch.full((), lo, dtype=torch.int64, device=flat.device))
        else:
            kernels.of(out, "index").decode(data[_PREFIX.size :], lo, bits, flat)


def _signed(flat: Tensor) -> Tensor:
    """uint64 seen as int64: torch has few functions for it, and only differences matter."""
    return flat.view(torch.int64) if flat.dtype == torch.uint64 else flat
