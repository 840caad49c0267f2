"""Block averages and a group code of what is left of each map, in plain PyTorch.

An average is summed down the columns of its block and then along the row of column sums, divided,
and rounded to the upper half of its bits (bfloat16). x = (lo + (code - v) * step) + average.

Where zero has a code, averages are those of the non-zero elements.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from actzip.kernels.dual_layout import DualLayout
from actzip.kernels.errors import DamagedError
from actzip.kernels.group_layout import GroupLayout
from actzip.kernels.reference import group, metadata, planes
from actzip.kernels.reference.averages import average, spread
from actzip.kernels.reference.metadata import REAL, Metadata

#: A residual of zero becomes this share of its element, far below its rounding, but not zero.
_FAINT = {torch.float32: 2.0**-30, torch.float64: 2.0**-60}


def encode(x: Tensor, layout: DualLayout, seed: int, data: Tensor) -> int:
    """Averages, metadata and codes of a 1-D tensor; returns the elements in raw maps.

    When that is not zero, `store_raw` must follow with a larger `data`.
    """
    if x.numel() == 0:
        return 0
    means, rest = _split(_maps(x, layout), layout)
    meta = group.measure(rest.flatten(), layout.one_by_one)
    means = torch.where(meta.raw.view(-1, 1, 1, 1), torch.zeros_like(means), means)
    data[: layout.averages_size] = _store(means, layout)
    coded = data[layout.averages_size :]
    if not layout.channels:
        return group.encode(rest.flatten(), layout.rest, seed, coded)
    offsets = layout.rest.offsets
    coded[: offsets[0]] = metadata.store(meta)
    values = _by_memory(rest.flatten(1), layout).unsqueeze(-1)
    codes = group.quantize(values, *_each(meta, layout), seed)
    for row, bits in enumerate(layout.rest.bits):
        coded[offsets[row] : offsets[row + 1]] = planes.pack(codes[row], bits)
    return int(meta.raw.sum()) * layout.size


def residual(x: Tensor, layout: DualLayout) -> Tensor:
    """What is left of a 1-D tensor without its averages, map by map; NaN throughout a map that is
    raw for its averages' sake."""
    if not x.numel():
        return x.to(group.real_type(x.dtype))
    return _split(_maps(x, layout), layout)[1].flatten()


def store_raw(x: Tensor, layout: DualLayout, data: Tensor) -> None:
    """The raw maps of x, as they are, behind the codes."""
    coded = data[layout.averages_size :]
    if not layout.channels:
        group.store_raw(x, layout.rest, coded)
        return
    raw = group.load(coded, layout.rest).raw
    coded[layout.rest.offsets[-1] :] = (
        _by_channel(x, layout)[raw.view(-1, layout.channels)].view(torch.uint8).flatten()
    )


def decode(data: Tensor, layout: DualLayout, seed: int, out: Tensor) -> None:
    if data.numel() < layout.averages_size:
        raise DamagedError(f"averages need {layout.averages_size} bytes, got {data.numel()}")
    if out.numel() == 0:
        return
    coded = data[layout.averages_size :]
    rest = _rest(coded, layout, seed, out.element_size())
    means = _load(data[: layout.averages_size], layout)
    x = rest + spread(means, layout.axes)
    if out.dtype == torch.float16:
        x = x.clamp(-65504.0, 65504.0)  # half a step beyond the range must not be infinity
    if layout.rest.zero:  # a stored non-zero never decodes to zero
        x = torch.where(rest != 0, _not_zero(x, out.dtype), torch.zeros_like(x))
    out.copy_(_by_memory(x.flatten(1), layout).flatten())
    restore_raw(data, layout, out)


def restore_raw(data: Tensor, layout: DualLayout, out: Tensor) -> None:
    coded = data[layout.averages_size :]
    if not layout.channels:
        group.restore_raw(coded, layout.rest, out)
        return
    raw, behind = group.load(coded, layout.rest).raw, coded[layout.rest.offsets[-1] :]
    if behind.numel() != int(raw.sum()) * layout.size * out.element_size():
        raise DamagedError("the raw maps do not fill the rest of the payload")
    values = behind.clone().view(out.dtype).view(-1, layout.size)
    _by_channel(out, layout)[raw.view(-1, layout.channels)] = values


def nonzero(data: Tensor, layout: DualLayout, out: Tensor) -> None:
    """1 where the code is not that of zero, else 0; for layouts in which zero has a code."""
    group.nonzero(data[layout.averages_size :], layout.rest, out)


def _split(maps: Tensor, layout: DualLayout) -> tuple[Tensor, Tensor]:
    """Averages, and what is left of the maps without them."""
    zero = layout.rest.zero
    means = average(maps, layout.axes, zero)
    rest = maps - spread(means, layout.axes)
    sane = (means.abs() <= REAL[means.dtype].largest).flatten(1).all(1)
    rest = torch.where(sane.view(-1, 1, 1, 1), rest, torch.full_like(rest, float("nan")))
    if zero:
        faint = _not_zero(maps * _FAINT[maps.dtype], maps.dtype)
        rest = torch.where(rest != 0, rest, faint)
        rest = torch.where(maps != 0, rest, torch.zeros_like(rest))
    return means, rest


def _not_zero(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x, or where it is zero the smallest number of the dtype that is not."""
    return torch.copysign(x.abs().clamp(min=group.TINY[dtype]), x)


def _rest(coded: Tensor, layout: DualLayout, seed: int, item: int) -> Tensor:
    """What the codes say, in maps; raw maps are left open."""
    rest = replace(layout.rest, dtype=group.real_type(layout.rest.dtype))
    if not layout.channels:
        real = group.decode_real(coded, rest, seed, item)
        return real.view(layout.maps, *(axis.size for axis in layout.axes))
    if coded.numel() < rest.offsets[-1]:
        raise DamagedError(f"codes need {rest.offsets[-1]} bytes, got {coded.numel()}")
    each, single = _each(group.load(coded, rest), replace(layout, rest=rest))
    real = group.dequantize(group.codes_of(coded, rest), each, single, seed)
    return _maps(real.flatten(), layout)


def _each(meta: Metadata, layout: DualLayout) -> tuple[Metadata, GroupLayout]:
    """Metadata for each element in the order of memory: a group code with groups of one."""

    def per_element(value: Tensor) -> Tensor:
        wide = value.view(-1, 1, layout.channels).expand(-1, layout.size, -1)
        return wide.reshape(-1, layout.size * layout.channels)

    each = Metadata(per_element(meta.lo), per_element(meta.step), per_element(meta.raw))
    return each, replace(layout.rest, group=1)


def _by_channel(x: Tensor, layout: DualLayout) -> Tensor:
    """A 1-D tensor in the order of memory as a view (samples, channels, positions)."""
    return x.view(-1, layout.size, layout.channels).transpose(1, 2)


def _maps(x: Tensor, layout: DualLayout) -> Tensor:
    """A 1-D tensor in the order of memory as maps in the computing type."""
    maps = _by_channel(x, layout) if layout.channels else x
    real = maps.to(group.real_type(x.dtype))
    return real.reshape(layout.maps, *(axis.size for axis in layout.axes))


def _by_memory(maps: Tensor, layout: DualLayout) -> Tensor:
    """(maps, elements of a map) as rows of the group payload."""
    if not layout.channels:
        return maps
    samples = maps.view(-1, layout.channels, maps.shape[1])
    return samples.transpose(1, 2).flatten(1)


def _store(means: Tensor, layout: DualLayout) -> Tensor:
    real = REAL[means.dtype]
    ordered = _by_memory(means.flatten(1), layout).flatten()
    return (ordered.view(real.bits) >> real.shift).to(real.half).view(torch.uint8)


def _load(data: Tensor, layout: DualLayout) -> Tensor:
    kind = group.real_type(layout.rest.dtype)
    real = REAL[kind]
    wide = (data.clone().view(real.half).to(real.bits) << real.shift).view(kind)
    if layout.channels:
        wide = wide.view(-1, layout.averages, layout.channels).transpose(1, 2)
    return wide.reshape(layout.maps, *(axis.blocks for axis in layout.axes))
