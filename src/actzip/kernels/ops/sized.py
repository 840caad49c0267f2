"""Operators whose payloads have a size that follows from the values: a graph that is captured
cannot hold them, one that is compiled can."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from actzip import kernels
from actzip.kernels.bounded_layout import BoundedLayout, strict_bounds
from actzip.kernels.entropy_table import Table
from actzip.kernels.fixedpoint_layout import ROUNDING, FixedPointLayout


def _some_bytes(like: Tensor) -> Tensor:
    """A fake result of a size that nobody knows yet."""
    size = torch.library.get_ctx().new_dynamic_size()
    return like.new_empty(size, dtype=torch.uint8)


def _fresh(device: torch.device, nbytes: int) -> Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device=device)


def _bounded(
    n: int, dtype: torch.dtype, errors: Sequence[float], inner: int, dither: bool,
    device: torch.device,
) -> BoundedLayout:  # fmt: skip
    return BoundedLayout(n, dtype, strict_bounds(errors, dtype, device), inner, dither)


@torch.library.custom_op("actzip::bounded_encode", mutates_args=())
def bounded_encode(
    x: Tensor, seed: int, errors: Sequence[float], inner: int, dither: bool
) -> Tensor:
    """The payload of `Bounded` without entropy coding; errors: one, or one per channel, of which
    `inner` elements follow each other."""
    layout = _bounded(x.numel(), x.dtype, errors, inner, dither, x.device)
    flat, room = x.contiguous().view(-1), functools.partial(_fresh, x.device)
    return kernels.of(x, "bounded").encode(flat, layout, seed, room)


@torch.library.custom_op("actzip::bounded_decode", mutates_args=())
def bounded_decode(
    data: Tensor, seed: int, shape: Sequence[int], dtype: torch.dtype, errors: Sequence[float],
    inner: int, dither: bool,
) -> Tensor:  # fmt: skip
    out = torch.empty(tuple(shape), dtype=dtype, device=data.device)
    layout = _bounded(out.numel(), dtype, errors, inner, dither, data.device)
    kernels.of(out, "bounded").decode(data, layout, seed, out.view(-1))
    return out


@torch.library.custom_op("actzip::bounded_entropy_encode", mutates_args=())
def bounded_entropy_encode(
    x: Tensor, seed: int, errors: Sequence[float], inner: int, dither: bool
) -> Tensor:
    """The same, entropy-coded; no bytes when `bounded_encode` gives fewer."""
    layout = _bounded(x.numel(), x.dtype, errors, inner, dither, x.device)
    flat, room = x.contiguous().view(-1), functools.partial(_fresh, x.device)
    found = kernels.of(x, "bounded_entropy").encode(flat, layout, seed, room)
    return _fresh(x.device, 0) if found is None else found


@torch.library.custom_op("actzip::bounded_entropy_decode", mutates_args=())
def bounded_entropy_decode(
    data: Tensor, seed: int, shape: Sequence[int], dtype: torch.dtype, errors: Sequence[float],
    inner: int, dither: bool,
) -> Tensor:  # fmt: skip
    out = torch.empty(tuple(shape), dtype=dtype, device=data.device)
    layout = _bounded(out.numel(), dtype, errors, inner, dither, data.device)
    kernels.of(out, "bounded_entropy").decode(data, layout, seed, out.view(-1))
    return out


@bounded_encode.register_fake
@bounded_entropy_encode.register_fake
def _(x: Tensor, seed: int, errors: Sequence[float], inner: int, dither: bool) -> Tensor:
    return _some_bytes(x)


@bounded_decode.register_fake
@bounded_entropy_decode.register_fake
def _(
    data: Tensor, seed: int, shape: Sequence[int], dtype: torch.dtype, errors: Sequence[float],
    inner: int, dither: bool,
) -> Tensor:  # fmt: skip
    return data.new_empty(tuple(shape), dtype=dtype)


@torch.library.custom_op("actzip::fixedpoint_encode", mutates_args=())
def fixedpoint_encode(
    x: Tensor, seed: int, bits: Sequence[int], inner: int, rounding: str, skip_zeros: bool
) -> Tensor:
    """The payload of `FixedPoint`; bits: one per channel, of which `inner` elements follow."""
    layout = FixedPointLayout(
        x.numel(), x.dtype, tuple(bits), inner, ROUNDING[rounding], skip_zeros
    )
    flat, room = x.contiguous().view(-1), functools.partial(_fresh, x.device)
    return kernels.of(x, "fixedpoint").encode(flat, layout, seed, room)


@fixedpoint_encode.register_fake
def _(
    x: Tensor, seed: int, bits: Sequence[int], inner: int, rounding: str, skip_zeros: bool
) -> Tensor:
    return _some_bytes(x)


@torch.library.custom_op("actzip::fixedpoint_decode", mutates_args=())
def fixedpoint_decode(
    data: Tensor, seed: int, shape: Sequence[int], dtype: torch.dtype, bits: Sequence[int],
    inner: int, rounding: str, skip_zeros: bool,
) -> Tensor:  # fmt: skip
    out = torch.empty(tuple(shape), dtype=dtype, device=data.device)
    layout = FixedPointLayout(
        out.numel(), dtype, tuple(bits), inner, ROUNDING[rounding], skip_zeros
    )
    kernels.of(out, "fixedpoint").decode(data, layout, seed, out.view(-1))
    return out


@fixedpoint_decode.register_fake
def _(
    data: Tensor, seed: int, shape: Sequence[int], dtype: torch.dtype, bits: Sequence[int],
    inner: int, rounding: str, skip_zeros: bool,
) -> Tensor:  # fmt: skip
    return data.new_empty(tuple(shape), dtype=dtype)


@torch.library.custom_op("actzip::entropy_encode", mutates_args=())
def entropy_encode(codes: Tensor) -> Tensor:
    """uint8 codes in the bits that their frequencies ask for."""
    kernel = kernels.of(codes, "entropy")
    table = Table.of(kernel.count(codes))
    return kernel.encode(codes.contiguous(), table, functools.partial(_fresh, codes.device))


@entropy_encode.register_fake
def _(codes: Tensor) -> Tensor:
    return _some_bytes(codes)


@torch.library.custom_op("actzip::entropy_decode", mutates_args=())
def entropy_decode(data: Tensor, count: int) -> Tensor:
    out = torch.empty(count, dtype=torch.uint8, device=data.device)
    kernels.of(out, "entropy").decode(data, out)
    return out


@entropy_decode.register_fake
def _(data: Tensor, count: int) -> Tensor:
    return data.new_empty(count)
