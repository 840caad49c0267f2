"""Operators of the codes in groups: `group_encode`, `dual_encode` and their decoders.

Payloads have `room` elements for raw groups behind the codes, the unused ones zero; `raw` says how
many elements the tensor has in such groups. When that is more than the room, the groups that found
none decode to NaN: whoever needs them looks at `raw` once a pass. `room` = the elements of the
tensor never loses one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from actzip import kernels
from actzip.kernels.dual_layout import DualLayout
from actzip.kernels.group_layout import GroupLayout
from actzip.kernels.reference import dual as reference_dual
from actzip.kernels.reference import group as reference_group


def _count(raw: int | Tensor, device: torch.device) -> Tensor:
    """As an int64 tensor of one element."""
    if isinstance(raw, int):
        return torch.full((1,), raw, dtype=torch.int64, device=device)
    return raw.reshape(1)


def _filled(
    data: Tensor, size: int, item: int, raw: Tensor,
    store: Callable[[Tensor], None], bounded: Callable[[Tensor], None],
) -> None:  # fmt: skip
    """Raw groups into the room; on a CPU by the fast kernel when they fit, as reading is free."""
    if data.device.type != "cpu":
        store(data)
        return
    used = size + int(raw) * item
    if used > data.numel():
        bounded(data)
        return
    data[used:] = 0
    if used > size:
        store(data[:used])


def _group(
    shape: Sequence[int], dtype: torch.dtype, bits: Sequence[int], group: int, rounding: str,
    zero: bool,
) -> GroupLayout:  # fmt: skip
    """One number of bits, or one for each sample (first dimension)."""
    samples = shape[0] if len(bits) > 1 else 1
    n = math.prod(shape[1:]) if len(bits) > 1 else math.prod(shape)
    return GroupLayout.of(samples, n, group, tuple(bits), rounding, zero, dtype)


@torch.library.custom_op("actzip::group_encode", mutates_args=())
def group_encode(
    x: Tensor, seed: Tensor, bits: Sequence[int], group: int, rounding: str, zero: bool, room: int
) -> tuple[Tensor, Tensor]:
    """The payload of `Group`, with room for raw groups, and how many elements are in such."""
    x = x.contiguous()
    layout, kernel = _group(x.shape, x.dtype, bits, group, rounding, zero), kernels.of(x, "group")
    size, item = layout.offsets[-1], x.element_size()
    data = torch.empty(size + room * item, dtype=torch.uint8, device=x.device)
    raw = _count(kernel.encode(x, layout, seed, data[:size]), x.device)
    _filled(data, size, item, raw, lambda d: kernel.store_raw(x, layout, d),
            lambda d: reference_group.store_raw(x, layout, d))  # fmt: skip
    return data, raw


@group_encode.register_fake
def _(
    x: Tensor, seed: Tensor, bits: Sequence[int], group: int, rounding: str, zero: bool, room: int
) -> tuple[Tensor, Tensor]:
    layout = _group(x.shape, x.dtype, bits, group, rounding, zero)
    size = layout.offsets[-1] + room * x.element_size()
    return x.new_empty(size, dtype=torch.uint8), x.new_empty(1, dtype=torch.int64)


@torch.library.custom_op("actzip::group_decode", mutates_args=())
def group_decode(
    data: Tensor, raw: Tensor, seed: Tensor, shape: Sequence[int], dtype: torch.dtype,
    bits: Sequence[int], group: int, rounding: str, zero: bool,
) -> Tensor:  # fmt: skip
    """The tensor of shape and dtype that `group_encode` was given."""
    out = torch.empty(tuple(shape), dtype=dtype, device=data.device)
    layout = _group(shape, dtype, bits, group, rounding, zero)
    used = _used(data, raw, layout.offsets[-1], out.element_size())
    if used is None:
        reference_group.decode(data, layout, seed, out, trusted=True)
    else:
        kernels.of(out, "group").decode(used, layout, seed, out, trusted=True)
    return out


@group_decode.register_fake
def _(
    data: Tensor, raw: Tensor, seed: Tensor, shape: Sequence[int], dtype: torch.dtype,
    bits: Sequence[int], group: int, rounding: str, zero: bool,
) -> Tensor:  # fmt: skip
    return data.new_empty(tuple(shape), dtype=dtype)


def _used(data: Tensor, raw: Tensor, size: int, item: int) -> Tensor | None:
    """Codes and raw groups without what is left of the room, which the C++ library does not know;
    None for a payload with groups that found no room."""
    if data.device.type != "cpu":
        return data
    used = size + int(raw) * item
    return data[:used] if used <= data.numel() else None


def _dual(
    shape: Sequence[int], dtype: torch.dtype, block: int, bits: int, original: bool, rounding: str,
    zero: bool,
) -> DualLayout:  # fmt: skip
    """Maps are all dimensions from the third."""
    sizes = [1] * (5 - len(shape)) + list(shape[2:])
    before = shape[0] * shape[1]
    return DualLayout.of(before, sizes, 1, block, bits, original, rounding, zero, dtype)


@torch.library.custom_op("actzip::dual_encode", mutates_args=())
def dual_encode(
    x: Tensor, seed: Tensor, block: int, bits: int, original: bool, rounding: str, zero: bool,
    room: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The payload of `Dual` for maps (N, C, …), with room for raw maps, and how many elements are
    in such."""
    layout = _dual(x.shape, x.dtype, block, bits, original, rounding, zero)
    flat, kernel = x.contiguous().view(-1), kernels.of(x, "dual")
    size, item = layout.averages_size + layout.rest.offsets[-1], x.element_size()
    data = torch.empty(size + room * item, dtype=torch.uint8, device=x.device)
    raw = _count(kernel.encode(flat, layout, seed, data[:size]), x.device)
    _filled(data, size, item, raw, lambda d: kernel.store_raw(flat, layout, d),
            lambda d: reference_dual.store_raw(flat, layout, d))  # fmt: skip
    return data, raw


@dual_encode.register_fake
def _(
    x: Tensor, seed: Tensor, block: int, bits: int, original: bool, rounding: str, zero: bool,
    room: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    layout = _dual(x.shape, x.dtype, block, bits, original, rounding, zero)
    size = layout.averages_size + layout.rest.offsets[-1] + room * x.element_size()
    return x.new_empty(size, dtype=torch.uint8), x.new_empty(1, dtype=torch.int64)


@torch.library.custom_op("actzip::dual_decode", mutates_args=())
def dual_decode(
    data: Tensor, raw: Tensor, seed: Tensor, shape: Sequence[int], dtype: torch.dtype, block: int,
    bits: int, original: bool, rounding: str, zero: bool,
) -> Tensor:  # fmt: skip
    """The tensor of shape and dtype that `dual_encode` was given."""
    out = torch.empty(tuple(shape), dtype=dtype, device=data.device)
    layout = _dual(shape, dtype, block, bits, original, rounding, zero)
    size = layout.averages_size + layout.rest.offsets[-1]
    used = _used(data, raw, size, out.element_size())
    if used is None:
        reference_dual.decode(data, layout, seed, out.view(-1), trusted=True)
    else:
        kernels.of(out, "dual").decode(used, layout, seed, out.view(-1), trusted=True)
    return out


@dual_decode.register_fake
def _(
    data: Tensor, raw: Tensor, seed: Tensor, shape: Sequence[int], dtype: torch.dtype, block: int,
    bits: int, original: bool, rounding: str, zero: bool,
) -> Tensor:  # fmt: skip
    return data.new_empty(tuple(shape), dtype=dtype)
