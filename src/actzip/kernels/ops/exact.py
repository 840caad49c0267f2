"""Operators of masks, integers, max-pool indices, casts and bit planes.

`misfits` is 0 when everything could be stored: a number on the device, to be looked at when the
host has reason to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from actzip import kernels
from actzip.kernels.reference.index import packed_size
from actzip.kernels.reference.planes import packed_size as planes_size


def _misfits(word: int | Tensor, device: torch.device) -> Tensor:
    if isinstance(word, int):
        return torch.full((1,), word, dtype=torch.int64, device=device)
    return word.reshape(1).to(torch.int64)


@torch.library.custom_op("actzip::mask_encode", mutates_args=())
def mask_encode(x: Tensor, on: float | None) -> tuple[Tensor, Tensor]:
    """One bit per element (`BitMask`), and how many misfits there were beside 0 and `on`."""
    data = torch.empty((x.numel() + 7) // 8, dtype=torch.uint8, device=x.device)
    word = kernels.of(x, "mask").encode(x.contiguous().view(-1), on, data)
    return data, _misfits(word, x.device)


@mask_encode.register_fake
def _(x: Tensor, on: float | None) -> tuple[Tensor, Tensor]:
    data = x.new_empty((x.numel() + 7) // 8, dtype=torch.uint8)
    return data, x.new_empty(1, dtype=torch.int64)


@torch.library.custom_op("actzip::mask_decode", mutates_args=())
def mask_decode(data: Tensor, on: float | None, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    out = torch.empty(tuple(shape), dtype=dtype, device=data.device)
    kernels.of(out, "mask").decode(data, on, out.view(-1))
    return out


@mask_decode.register_fake
def _(data: Tensor, on: float | None, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return data.new_empty(tuple(shape), dtype=dtype)


@torch.library.custom_op("actzip::index_encode", mutates_args=())
def index_encode(x: Tensor, lo: int, bits: int) -> Tensor:
    """x - lo in so many bits each; the caller knows the range, so that no value is looked at."""
    data = torch.empty(packed_size(x.numel(), bits), dtype=torch.uint8, device=x.device)
    if data.numel():
        kernels.of(x, "index").encode(x.contiguous().view(-1), lo, bits, data)
    return data


@index_encode.register_fake
def _(x: Tensor, lo: int, bits: int) -> Tensor:
    return x.new_empty(packed_size(x.numel(), bits), dtype=torch.uint8)


@torch.library.custom_op("actzip::index_decode", mutates_args=())
def index_decode(
    data: Tensor, lo: int, bits: int, shape: Sequence[int], dtype: torch.dtype
) -> Tensor:
    out = torch.full(tuple(shape), lo, dtype=dtype, device=data.device)
    if data.numel():
        kernels.of(out, "index").decode(data, lo, bits, out.view(-1))
    return out


@index_decode.register_fake
def _(data: Tensor, lo: int, bits: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return data.new_empty(tuple(shape), dtype=dtype)


def _geometry(shape: Sequence[int], window: Sequence[int]) -> tuple[int, list[int]]:
    """Bits of a place, and what the kernels know as geometry."""
    rank = len(window) // 5
    ones, zeros = [1] * (3 - rank), [0] * (3 - rank)
    rows = [list(window[i * rank : (i + 1) * rank]) for i in range(5)]
    fills = (ones, ones, zeros, ones, ones)
    pooled = [*ones, *shape[len(shape) - rank :]]
    flat = [n for fill, row in zip(fills, rows, strict=True) for n in (*fill, *row)]
    return (math.prod(rows[0]) - 1).bit_length(), [*pooled, *flat, 1]


@torch.library.custom_op("actzip::window_encode", mutates_args=())
def window_encode(x: Tensor, window: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Places of max-pool indices in their windows (`Window`), and how many are outside.

    window: kernel, stride, padding, dilation and size of the map, one number a dimension each.
    """
    bits, geometry = _geometry(x.shape, window)
    places = torch.empty(x.numel(), dtype=torch.uint8, device=x.device)
    data = torch.empty(packed_size(x.numel(), bits), dtype=torch.uint8, device=x.device)
    if not x.numel():
        return data, _misfits(0, x.device)
    word = kernels.of(x, "window").encode(x.contiguous(), geometry, places)
    if bits:
        kernels.of(x, "index").encode(places, 0, bits, data)
    return data, _misfits(word, x.device)


@window_encode.register_fake
def _(x: Tensor, window: Sequence[int]) -> tuple[Tensor, Tensor]:
    bits, _ = _geometry(x.shape, window)
    data = x.new_empty(packed_size(x.numel(), bits), dtype=torch.uint8)
    return data, x.new_empty(1, dtype=torch.int64)


@torch.library.custom_op("actzip::window_decode", mutates_args=())
def window_decode(data: Tensor, window: Sequence[int], shape: Sequence[int]) -> Tensor:
    out = torch.empty(tuple(shape), dtype=torch.int64, device=data.device)
    bits, geometry = _geometry(shape, window)
    places = torch.zeros(out.numel(), dtype=torch.uint8, device=data.device)
    if out.numel():
        if bits:
            kernels.of(out, "index").decode(data, 0, bits, places)
        kernels.of(out, "window").decode(places, geometry, out)
    return out


@window_decode.register_fake
def _(data: Tensor, window: Sequence[int], shape: Sequence[int]) -> Tensor:
    return data.new_empty(tuple(shape), dtype=torch.int64)


@torch.library.custom_op("actzip::cast_convert", mutates_args=())
def cast_convert(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The same numbers in another floating type; a finite value never becomes infinity."""
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    kernels.of(x, "cast").convert(x.contiguous().view(-1), out.view(-1))
    return out


@cast_convert.register_fake
def _(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.new_empty(x.shape, dtype=dtype)


@torch.library.custom_op("actzip::planes_pack", mutates_args=())
def planes_pack(codes: Tensor, bits: int) -> Tensor:
    """1-D uint8 codes as bit planes."""
    return kernels.of(codes, "planes").pack(codes.contiguous(), bits)


@planes_pack.register_fake
def _(codes: Tensor, bits: int) -> Tensor:
    return codes.new_empty(planes_size(codes.numel(), bits))


@torch.library.custom_op("actzip::planes_unpack", mutates_args=())
def planes_unpack(data: Tensor, count: int, bits: int) -> Tensor:
    return kernels.of(data, "planes").unpack(data.contiguous(), count, bits)


@planes_unpack.register_fake
def _(data: Tensor, count: int, bits: int) -> Tensor:
    return data.new_empty(count)
