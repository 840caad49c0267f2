"""What is asked of a payload from outside before any kernel sees it.

A payload that `encode` made in this process is what it says. One that was read from bytes,
unpickled or put together by hand may say anything: every field of its head, the tensor that holds
its bytes, and whether so few bytes can have come from so large a tensor. Questions about the bytes
themselves are for the kernels, which know every length.

`Codec.least_bytes` ties what a head claims to the bytes that are there: time and memory of a
damaged payload are those of an honest one of its length. Some honest ones are tiny: nine bytes hold
a constant of any size. So there is a bound on what is decoded into fresh memory, FREE bytes and
PER_BYTE for each byte of data, more than any codec reaches whose payloads grow with their tensors;
for larger ones the caller gives `out`, and thereby says that the memory is there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from actzip.codecs.memory_order import extent, spaced, unexpand

if TYPE_CHECKING:
    from actzip.codecs.payload import Payload

#: Version of the payload format; it changes when the meaning of any stored byte changes.
FORMAT = 2

FREE = 1 << 26
PER_BYTE = 1 << 18

_DIMS = 64  #: torch's loops over elements take no more
_REACH = 1 << 48  #: more elements than any machine holds
_WHOLE = {
    torch.bool,
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.int8, torch.int16, torch.int32, torch.int64),
}


def fault(payload: Payload) -> str | None:
    """What is wrong with a payload; None when its kernels may see it."""
    return _head(payload) or _bytes(payload.data) or _claim(payload)


def too_large(payload: Payload) -> str | None:
    """Why the payload is decoded only into an `out` of the caller's; None when it needs none."""
    wanted = extent(payload.shape, payload.stride) * payload.dtype.itemsize
    if wanted <= FREE + PER_BYTE * payload.data.numel():
        return None
    return (
        f"{payload.data.numel()} bytes would become {wanted}, a tensor of shape {payload.shape} "
        f"and strides {payload.stride}; if that is meant, decode it with out= such a tensor"
    )


def _head(payload: Payload) -> str | None:
    if payload.version != FORMAT:
        return (
            f"payload has format {payload.version}, this actzip reads format {FORMAT}; decode it "
            "with the version that made it"
        )
    shape, stride = payload.shape, payload.stride
    if not (_counts(shape) and _counts(stride) and len(shape) == len(stride) <= _DIMS):
        return f"shape {shape!r} and strides {stride!r} belong to no tensor"
    countable = math.prod(max(1, size) for size in shape) < 1 << 63
    if not countable or extent(shape, stride) > _REACH or not spaced(shape, stride):
        return f"a tensor of shape {shape} and strides {stride} cannot be written"
    seed = payload.seed
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        return f"a seed is a number of 64 bits, got {seed!r}"
    if not _is_stored(payload.dtype):
        return f"tensors of dtype {payload.dtype!r} are not stored"
    return None


def _is_stored(dtype: object) -> bool:
    """Not quantized, not several numbers to a byte: torch copies no such tensors."""
    if not isinstance(dtype, torch.dtype) or str(dtype).endswith("_x2"):
        return False
    return dtype.is_floating_point or dtype.is_complex or dtype in _WHOLE


def _counts(sizes: object) -> bool:
    return isinstance(sizes, tuple) and all(
        isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= _REACH for n in sizes
    )


def _bytes(data: object) -> str | None:
    if not isinstance(data, Tensor) or data.layout != torch.strided or data.dtype != torch.uint8:
        kind = f"{data.dtype}, {data.layout}" if isinstance(data, Tensor) else type(data).__name__
        return f"the data of a payload is a dense uint8 tensor, got {kind}"
    if data.dim() != 1 or data.stride() != (1,) or data.device.type == "meta":
        return (
            "the data of a payload is one row of bytes, got a tensor of shape "
            f"{tuple(data.shape)} and strides {data.stride()} on {data.device}"
        )
    return None


def _claim(payload: Payload) -> str | None:
    """Whether the codec stores tensors like this one at all, and in so few bytes."""
    like = torch.empty_strided(payload.shape, payload.stride, dtype=payload.dtype, device="meta")
    try:
        payload.codec.check(like)
    except (TypeError, ValueError) as error:
        return str(error)
    least, there = payload.codec.least_bytes(unexpand(like)), payload.data.numel()
    if there < least:
        return f"a tensor of shape {payload.shape} takes {least} bytes or more, got {there}"
    return None
