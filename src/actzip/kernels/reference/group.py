"""Low-bit codes with a least value and a step per group, in plain PyTorch.

    code = clamp(rint((x - lo) * (1 / step) + v), 0, levels)      + 1 when zero has a code
    x    = lo + (code - v) * step                                  (v when rounding is "dither")

Every operation is rounded on its own and in this order, in float32 (float64 for float64): so
csrc/group/group.cpp gives the same bytes. layout.py says where the parts of a payload are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.errors import DamagedError
from actzip.kernels.group_layout import ROUNDING, GroupLayout
from actzip.kernels.reference import metadata, planes, raw
from actzip.kernels.reference.dither import dither
from actzip.kernels.reference.metadata import Metadata, real_type
from actzip.kernels.reference.slabs import Slab, slabs
from actzip.kernels.reference.tables import table

#: The smallest number above zero: what a stored non-zero comes back as instead of zero.
TINY = {
    torch.float32: 2.0**-149,
    torch.bfloat16: 2.0**-133,
    torch.float16: 2.0**-24,
    torch.float64: 2.0**-1074,
}


def encode(x: Tensor, layout: GroupLayout, seed: int | Tensor, data: Tensor) -> int | Tensor:
    """Metadata and codes of a dense tensor into `data`; returns the elements in raw groups, which
    `store_raw` puts behind them in a larger `data`: a number that is on the device.

    Elements are taken as they lie in memory, here and below, whatever the order of dimensions.
    """
    if layout.n == 0 or layout.samples == 0:
        return 0
    rows, meta = _rows(x, layout), measure(x, layout)
    data[: layout.offsets[0]] = metadata.store(meta)
    for slab in slabs(layout.samples, layout.n, x.element_size()):
        values = rows[slab.top : slab.bottom, slab.first : slab.last].to(meta.lo.dtype)
        place = _groups(slab, layout, x.device)
        store_codes(
            data, quantize(values, values != 0, meta, place, layout, slab, seed), layout, slab
        )
    return raw.count(meta.raw, layout)


def measure(x: Tensor, layout: GroupLayout) -> Metadata:
    """Metadata of all groups, (samples, groups), without encoding: what predictions need."""
    rows = _rows(x, layout)
    whole = layout.n // layout.group
    groups = rows[:, : whole * layout.group].unflatten(1, (whole, layout.group))
    parts = [metadata.extremes(groups, layout.zero)] if whole else []
    if whole < layout.groups:
        least, largest = metadata.extremes(rows[:, whole * layout.group :], layout.zero)
        parts.append((least.unsqueeze(1), largest.unsqueeze(1)))
    lo, hi = (torch.cat(part, 1) for part in zip(*parts, strict=True))
    return metadata.measure(lo, hi, levels(layout, x.device).view(-1, 1).expand_as(lo))


def store_raw(x: Tensor, layout: GroupLayout, data: Tensor) -> None:
    """The raw groups of x behind the codes; `data` holds what `encode` wrote."""
    if layout.n and layout.samples:
        raw.store(_rows(x, layout).view(-1), load(data, layout).raw, layout, data)


def decode(
    data: Tensor, layout: GroupLayout, seed: int | Tensor, out: Tensor, trusted: bool = False
) -> None:
    """Values of what `encode` and `store_raw` wrote; trusted: nothing is read to refuse damage."""
    check(data, layout, out.element_size(), trusted)
    if out.numel() == 0:
        return
    rows, meta = _rows(out, layout), load(data, layout)
    for slab in slabs(layout.samples, layout.n, out.element_size()):
        place = _groups(slab, layout, out.device)
        real = dequantize(codes_of(data, layout, slab), meta, place, layout, slab, seed)
        if layout.dtype == torch.float16:
            real.clamp_(-65504.0, 65504.0)  # half a step beyond the range must not be infinity
        rows[slab.top : slab.bottom, slab.first : slab.last] = real
    if data.numel() > layout.offsets[-1]:
        raw.restore(rows.view(-1), meta.raw, layout, data)


def check(data: Tensor, layout: GroupLayout, item: int, trusted: bool) -> None:
    """A DamagedError for bytes that no encoder writes; `item`: bytes of an element."""
    end = layout.offsets[-1]
    if data.numel() < end:
        raise DamagedError(f"group codes need {end} bytes, got {data.numel()}")
    if trusted:
        return
    empty = layout.n == 0 or layout.samples == 0
    elements = 0 if empty else int(raw.count(load(data, layout).raw, layout))
    if data.numel() - end != elements * item:
        raise DamagedError("the raw groups do not fill the rest of the payload")


def nonzero(data: Tensor, layout: GroupLayout, out: Tensor) -> None:
    """1 where the code is not that of zero, else 0; for layouts in which zero has a code."""
    check(data, layout, out.element_size(), trusted=True)
    if out.numel() == 0:
        return
    rows = _rows(out, layout)
    for slab in slabs(layout.samples, layout.n, out.element_size()):
        here = codes_of(data, layout, slab) > 0
        rows[slab.top : slab.bottom, slab.first : slab.last] = here


def codes_of(data: Tensor, layout: GroupLayout, slab: Slab) -> Tensor:
    """The codes of a slab, (rows, elements)."""
    bits = layout.bits[slab.top : slab.bottom]
    return planes.unpack_rows(_stretch(data, layout, slab), slab.last - slab.first, bits)


def store_codes(data: Tensor, codes: Tensor, layout: GroupLayout, slab: Slab) -> None:
    packed = planes.pack_rows(codes, layout.bits[slab.top : slab.bottom])
    _stretch(data, layout, slab).copy_(packed)


def _stretch(data: Tensor, layout: GroupLayout, slab: Slab) -> Tensor:
    """Where the codes of a slab are."""
    if slab.first == 0 and slab.last == layout.n:
        return data[layout.offsets[slab.top] : layout.offsets[slab.bottom]]
    bits = layout.bits[slab.top]
    start = layout.offsets[slab.top] + planes.packed_size(slab.first, bits)
    return data[start : start + planes.packed_size(slab.last - slab.first, bits)]


def _rows(x: Tensor, layout: GroupLayout) -> Tensor:
    return x.as_strided((x.numel(),), (1,)).view(layout.samples, layout.n)


def _groups(slab: Slab, layout: GroupLayout, device: torch.device) -> Tensor:
    """The number of each element's group."""
    inner = torch.arange(slab.first, slab.last, device=device) // layout.group
    return torch.arange(slab.top, slab.bottom, device=device).view(-1, 1) * layout.groups + inner


def levels(layout: GroupLayout, device: torch.device) -> Tensor:
    """The largest code of each row, counted from the one that stands for the least value."""
    each = tuple(layout.levels(bits) for bits in layout.bits)
    return table(each, torch.int64, device)


def quantize(
    values: Tensor, there: Tensor, meta: Metadata, place: Tensor, layout: GroupLayout, slab: Slab,
    seed: int | Tensor,
) -> Tensor:  # fmt: skip
    """Codes of a slab's values; `there` marks those that are not zero, `place` names their groups.

    Raw groups have the step 0, so that all of their codes are those of the least value.
    """
    one = torch.ones((), dtype=values.dtype, device=values.device)
    inverse = torch.where(meta.step > 0, one / meta.step, one - one).view(-1)
    t = (values - meta.lo.view(-1)[place]).mul_(inverse[place])
    if layout.rounding != ROUNDING["nearest"]:
        t.add_(_dither(layout, slab, seed, t.device))
    t.nan_to_num_(0.0, 0.0, 0.0).round_().clamp_(min=0)
    most = levels(layout, t.device)[slab.top : slab.bottom].view(-1, 1)
    codes = torch.minimum(t, most.to(t.dtype)).to(torch.uint8)
    return codes.add_(1).mul_(there) if layout.zero else codes


def dequantize(
    codes: Tensor, meta: Metadata, place: Tensor, layout: GroupLayout, slab: Slab,
    seed: int | Tensor,
) -> Tensor:  # fmt: skip
    """The values of a slab's codes in the computing type, those of raw groups left open."""
    q = codes.to(meta.lo.dtype)
    if layout.zero:
        q.sub_(1.0)
    if layout.rounding == ROUNDING["dither"]:
        q.sub_(_dither(layout, slab, seed, q.device))
    x = q.mul_(meta.step.view(-1)[place]).add_(meta.lo.view(-1)[place])
    if layout.zero:
        kept = torch.copysign(x.abs().clamp_(min=TINY[layout.dtype]), x)
        x = torch.where(codes > 0, kept, torch.zeros((), dtype=x.dtype, device=x.device))
    return x


def _dither(layout: GroupLayout, slab: Slab, seed: int | Tensor, device: torch.device) -> Tensor:
    """(rows, elements): rows start at multiples of 32."""
    padded = -(-layout.n // 32) * 32
    rows, width = slab.bottom - slab.top, slab.last - slab.first
    if rows == 1:
        return dither(seed, slab.top * padded + slab.first, width, device).view(1, -1)
    return dither(seed, slab.top * padded, rows * padded, device).view(rows, padded)[:, :width]


def per_element(value: Tensor, layout: GroupLayout) -> Tensor:
    """(samples * groups) values, each repeated for the elements of its group: (samples, n)."""
    each = value.view(layout.samples, layout.groups, 1).expand(-1, -1, layout.group)
    return each.reshape(layout.samples, -1)[:, : layout.n]


def load(data: Tensor, layout: GroupLayout) -> Metadata:
    groups = layout.samples * layout.groups
    return metadata.load(data[: layout.offsets[0]], groups, real_type(layout.dtype))
