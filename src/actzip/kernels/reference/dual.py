"""Block averages and a group code of what is left of each map, in plain PyTorch.

An average is summed down the columns of its block and then along the row of column sums, divided,
and rounded to the upper half of its bits (bfloat16). x = (lo + (code - v) * step) + average.

Where zero has a code, averages are those of the non-zero elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from actzip.kernels.dual_layout import DualLayout
from actzip.kernels.errors import DamagedError
from actzip.kernels.reference import group, metadata, raw
from actzip.kernels.reference.averages import average, block_of, spread
from actzip.kernels.reference.metadata import REAL, Metadata, real_type
from actzip.kernels.reference.slabs import Slab, elements, slabs

#: A residual of zero becomes this share of its element, far below its rounding, but not zero.
_FAINT = {torch.float32: 2.0**-30, torch.float64: 2.0**-60}


def encode(x: Tensor, layout: DualLayout, seed: int | Tensor, data: Tensor) -> int | Tensor:
    """Averages, metadata and codes of a 1-D tensor; returns the elements in raw maps, which
    `store_raw` puts behind them in a larger `data`: a number that is on the device."""
    if x.numel() == 0:
        return 0
    means, meta = _measure(x, layout)
    real = REAL[means.dtype]
    stored = (means.view(real.bits) >> real.shift).to(real.half)
    data[: layout.averages_size] = stored.view(torch.uint8).flatten()
    coded, rest = data[layout.averages_size :], layout.rest
    coded[: rest.offsets[0]] = metadata.store(meta)
    rows = x.view(rest.samples, rest.n)
    for slab in slabs(rest.samples, rest.n, x.element_size()):
        values = rows[slab.top : slab.bottom, slab.first : slab.last].to(means.dtype)
        place, block = _places(slab, layout, x.device)
        left = _left(values, means.view(-1)[block], rest.zero)
        codes = group.quantize(left, values != 0, meta, place, rest, slab, seed)
        group.store_codes(coded, codes, rest, slab)
    return raw.count(meta.raw, rest)


def residual(x: Tensor, layout: DualLayout) -> Tensor:
    """What is left of a 1-D tensor without its averages, map by map; NaN throughout a map that is
    raw for its averages' sake. For maps that lie one after the other."""
    if not x.numel():
        return x.to(real_type(x.dtype))
    maps = x.to(real_type(x.dtype)).view(layout.maps, *(axis.size for axis in layout.axes))
    return _split(maps, layout)[1].flatten()


def store_raw(x: Tensor, layout: DualLayout, data: Tensor) -> None:
    """The raw maps of x, as they are, behind the codes."""
    coded = data[layout.averages_size :]
    if x.numel():
        raw.store(x, group.load(coded, layout.rest).raw, layout.rest, coded, layout.channels)


def decode(
    data: Tensor, layout: DualLayout, seed: int | Tensor, out: Tensor, trusted: bool = False
) -> None:
    """Values of what `encode` and `store_raw` wrote; trusted: nothing is read to refuse damage."""
    if data.numel() < layout.averages_size:
        raise DamagedError(f"averages need {layout.averages_size} bytes, got {data.numel()}")
    coded, rest = data[layout.averages_size :], layout.rest
    if out.numel() == 0:
        return
    group.check(coded, rest, out.element_size(), trusted)
    real = REAL[real_type(rest.dtype)]
    stored = data[: layout.averages_size].clone().view(real.half)
    means = (stored.to(real.bits) << real.shift).view(real_type(rest.dtype))
    rows, meta = out.view(rest.samples, rest.n), group.load(coded, rest)
    wide = replace(rest, dtype=means.dtype)
    for slab in slabs(rest.samples, rest.n, out.element_size()):
        place, block = _places(slab, layout, out.device)
        codes = group.codes_of(coded, rest, slab)
        x = group.dequantize(codes, meta, place, wide, slab, seed).add_(means[block])
        if out.dtype == torch.float16:
            x.clamp_(-65504.0, 65504.0)  # half a step beyond the range must not be infinity
        if rest.zero:  # a stored non-zero never decodes to zero
            nothing = torch.zeros((), dtype=x.dtype, device=x.device)
            x = torch.where(codes > 0, _not_zero(x, out.dtype), nothing)
        rows[slab.top : slab.bottom, slab.first : slab.last] = x
    restore_raw(data, layout, out)


def restore_raw(data: Tensor, layout: DualLayout, out: Tensor) -> None:
    coded = data[layout.averages_size :]
    if coded.numel() > layout.rest.offsets[-1]:
        raw.restore(out, group.load(coded, layout.rest).raw, layout.rest, coded, layout.channels)


def nonzero(data: Tensor, layout: DualLayout, out: Tensor) -> None:
    """1 where the code is not that of zero, else 0; for layouts in which zero has a code."""
    group.nonzero(data[layout.averages_size :], layout.rest, out)


def _measure(x: Tensor, layout: DualLayout) -> tuple[Tensor, Metadata]:
    """Averages in the order in which they are stored, those of raw maps 0, and metadata."""
    found = [_measure_some(maps, layout) for maps in _some_maps(x, layout)]
    means, lo, hi = (torch.cat(parts) for parts in zip(*found, strict=True))
    levels = torch.full_like(lo, layout.rest.levels(layout.rest.bits[0]), dtype=torch.int64)
    meta = metadata.measure(lo, hi, levels)
    means = torch.where(meta.raw.view(-1, 1), torch.zeros_like(means), means)
    if layout.channels:
        means = means.view(-1, layout.channels, layout.averages).transpose(1, 2).contiguous()
    return means, meta


def _measure_some(maps: Tensor, layout: DualLayout) -> tuple[Tensor, Tensor, Tensor]:
    means, rest = _split(maps, layout)
    return means.flatten(1), *metadata.extremes(rest.flatten(1), layout.rest.zero)


def _some_maps(x: Tensor, layout: DualLayout) -> Iterator[Tensor]:
    """A few maps at a time in the computing type, in the order of their numbers."""
    most = max(1, elements(x.numel(), x.element_size()) // layout.size)
    kind, shape = real_type(x.dtype), (-1, *(axis.size for axis in layout.axes))
    if not layout.channels:
        for some in x.view(layout.maps, layout.size).split(most):
            yield some.to(kind).view(shape)
        return
    for sample in x.view(-1, layout.size, layout.channels):
        for some in sample.split(most, 1):
            yield some.t().to(kind, memory_format=torch.contiguous_format).reshape(shape)


def _split(maps: Tensor, layout: DualLayout) -> tuple[Tensor, Tensor]:
    """Averages, and what is left of the maps without them."""
    means = average(maps, layout.axes, layout.rest.zero)
    rest = _left(maps, spread(means, layout.axes), layout.rest.zero)
    sane = (means.abs() <= REAL[means.dtype].largest).flatten(1).all(1).view(-1, 1, 1, 1)
    nan = torch.full((), float("nan"), dtype=rest.dtype, device=rest.device)
    kept = sane | (maps == 0) if layout.rest.zero else sane
    return means, torch.where(kept, rest, nan)


def _left(values: Tensor, means: Tensor, zero: bool) -> Tensor:
    """What averages leave of values; with `zero`, nothing of zeros and something of all others."""
    rest = values - means
    if zero:
        faint = _not_zero(values * _FAINT[values.dtype], values.dtype)
        rest = torch.where(rest != 0, rest, faint)
        rest = torch.where(values != 0, rest, torch.zeros((), dtype=rest.dtype, device=rest.device))
    return rest


def _not_zero(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x, or where it is zero the smallest number of the dtype that is not."""
    return torch.copysign(x.abs().clamp_(min=group.TINY[dtype]), x)


def _places(slab: Slab, layout: DualLayout, device: torch.device) -> tuple[Tensor, Tensor]:
    """For each element of a slab the number of its map, and that of its average as stored."""
    inner = torch.arange(slab.first, slab.last, device=device)
    block = block_of(layout.axes, device)
    if not layout.channels:
        number, position = inner // layout.size, inner % layout.size
        return number.view(1, -1), (number * layout.averages + block[position]).view(1, -1)
    sample = torch.arange(slab.top, slab.bottom, device=device).view(-1, 1)
    channel, position = inner % layout.channels, inner // layout.channels
    each = block[position] * layout.channels + channel
    maps = sample * layout.channels + channel
    return maps, sample * layout.averages * layout.channels + each
