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
from actzip.kernels.reference import metadata, planes
from actzip.kernels.reference.dither import dither_at

#: The smallest number above zero: what a stored non-zero comes back as instead of zero.
TINY = {
    torch.float32: 2.0**-149,
    torch.bfloat16: 2.0**-133,
    torch.float16: 2.0**-24,
    torch.float64: 2.0**-1074,
}


def real_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which elements of this type are computed."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def encode(x: Tensor, layout: GroupLayout, seed: int, data: Tensor) -> int:
    """Metadata and codes of a dense tensor into `data`; returns the elements in raw groups.

    When that is not zero, `store_raw` must follow with a larger `data`. Elements are taken as they
    lie in memory, here and below, whatever the order of dimensions.
    """
    if layout.n == 0 or layout.samples == 0:
        return 0
    grouped = _groups(x, layout)
    meta = _measure(grouped, layout)
    offsets = layout.offsets
    data[: offsets[0]] = metadata.store(meta)
    codes = quantize(grouped, meta, layout, seed)
    for row, bits in enumerate(layout.bits):
        data[offsets[row] : offsets[row + 1]] = planes.pack(codes[row], bits)
    return int(per_element(meta.raw, layout).sum())


def measure(x: Tensor, layout: GroupLayout) -> metadata.Metadata:
    """Metadata of all groups, (samples, groups), without encoding: what predictions need."""
    return _measure(_groups(x, layout), layout)


def store_raw(x: Tensor, layout: GroupLayout, data: Tensor) -> None:
    """The raw groups of x behind the codes; `data` holds what `encode` wrote."""
    base = layout.offsets[-1]
    raw = per_element(load(data, layout).raw, layout)
    data[base:] = _rows(x, layout)[raw].view(torch.uint8)


def decode(data: Tensor, layout: GroupLayout, seed: int, out: Tensor) -> None:
    out = _as_it_lies(out)
    real = decode_real(data, layout, seed, out.element_size())
    if layout.dtype == torch.float16:
        real = real.clamp(-65504.0, 65504.0)  # half a step beyond the range must not be infinity
    out.copy_(real)
    restore_raw(data, layout, out)


def decode_real(data: Tensor, layout: GroupLayout, seed: int, item: int) -> Tensor:
    """The coded values as a 1-D tensor of the computing type, raw groups as zeros.

    `item`: bytes of an element of a raw group.
    """
    end = layout.offsets[-1]
    if data.numel() < end:
        raise DamagedError(f"group codes need {end} bytes, got {data.numel()}")
    empty = layout.n == 0 or layout.samples == 0
    if empty and data.numel() == end:
        return torch.empty(0, dtype=real_type(layout.dtype), device=data.device)
    meta = load(data, layout)
    if empty or data.numel() - end != int(per_element(meta.raw, layout).sum()) * item:
        raise DamagedError("the raw groups do not fill the rest of the payload")
    return dequantize(codes_of(data, layout), meta, layout, seed).flatten()


def restore_raw(data: Tensor, layout: GroupLayout, out: Tensor) -> None:
    end = layout.offsets[-1]
    if data.numel() > end:
        raw = per_element(load(data, layout).raw, layout).flatten()
        out[raw] = data[end:].clone().view(out.dtype)


def nonzero(data: Tensor, layout: GroupLayout, out: Tensor) -> None:
    """1 where the code is not that of zero, else 0; for layouts in which zero has a code."""
    if data.numel() < layout.offsets[-1]:
        raise DamagedError(f"group codes need {layout.offsets[-1]} bytes, got {data.numel()}")
    if out.numel():
        _as_it_lies(out).copy_(codes_of(data, layout).flatten() > 0)


def codes_of(data: Tensor, layout: GroupLayout) -> Tensor:
    offsets = layout.offsets
    spans = zip(offsets[:-1], offsets[1:], layout.bits, strict=True)
    return torch.stack([planes.unpack(data[a:b], layout.n, bits) for a, b, bits in spans])


def _as_it_lies(x: Tensor) -> Tensor:
    return x.as_strided((x.numel(),), (1,))


def _rows(x: Tensor, layout: GroupLayout) -> Tensor:
    return _as_it_lies(x).view(layout.samples, layout.n)


def _groups(x: Tensor, layout: GroupLayout) -> Tensor:
    """(samples, groups, group) in the computing type, the last group padded with zeros."""
    rows = _rows(x, layout).to(real_type(x.dtype))
    missing = layout.groups * layout.group - layout.n
    padded = torch.nn.functional.pad(rows, (0, missing)) if missing else rows
    return padded.view(layout.samples, layout.groups, layout.group)


def _measure(grouped: Tensor, layout: GroupLayout) -> metadata.Metadata:
    place = torch.arange(layout.groups * layout.group, device=grouped.device)
    seen = (place < layout.n).view(1, layout.groups, layout.group).expand_as(grouped)
    if layout.zero:
        seen = seen & (grouped != 0)
    levels = [layout.levels(bits) for bits in layout.bits]
    each = torch.tensor(levels, device=grouped.device).view(-1, 1).expand(grouped.shape[:2])
    return metadata.measure(grouped, seen, each)


def quantize(grouped: Tensor, meta: metadata.Metadata, layout: GroupLayout, seed: int) -> Tensor:
    one = torch.ones((), dtype=grouped.dtype, device=grouped.device)
    inverse = torch.where(meta.step > 0, one / meta.step, one - one)
    t = (grouped - meta.lo.unsqueeze(-1)) * inverse.unsqueeze(-1)
    t = t.view(layout.samples, -1)[:, : layout.n]
    if layout.rounding != ROUNDING["nearest"]:
        t = t + _dither(layout, seed, t.device)
    levels = torch.tensor([layout.levels(bits) for bits in layout.bits], device=t.device)
    q = torch.minimum(t.nan_to_num(0.0, 0.0, 0.0).round().clamp(min=0), levels.view(-1, 1))
    codes = torch.where(per_element(meta.raw, layout), torch.zeros_like(q), q)
    if layout.zero:
        x = grouped.view(layout.samples, -1)[:, : layout.n]
        codes = torch.where(x != 0, codes + 1, torch.zeros_like(codes))
    return codes.to(torch.uint8)


def dequantize(codes: Tensor, meta: metadata.Metadata, layout: GroupLayout, seed: int) -> Tensor:
    q = codes.to(meta.lo.dtype)
    if layout.zero:
        q = q - 1.0
    if layout.rounding == ROUNDING["dither"]:
        q = q - _dither(layout, seed, q.device)
    x = per_element(meta.lo, layout) + q * per_element(meta.step, layout)
    if layout.zero:
        kept = torch.copysign(x.abs().clamp(min=TINY[layout.dtype]), x)
        x = torch.where(codes > 0, kept, torch.zeros_like(x))
    return x


def _dither(layout: GroupLayout, seed: int, device: torch.device) -> Tensor:
    padded = -(-layout.n // 32) * 32
    rows = torch.arange(layout.samples, device=device).view(-1, 1) * padded
    v = dither_at(seed, rows + torch.arange(layout.n, device=device))
    return v.to(real_type(layout.dtype))


def per_element(value: Tensor, layout: GroupLayout) -> Tensor:
    """(samples * groups) values, each repeated for the elements of its group: (samples, n)."""
    each = value.view(layout.samples, layout.groups, 1).expand(-1, -1, layout.group)
    return each.reshape(layout.samples, -1)[:, : layout.n]


def load(data: Tensor, layout: GroupLayout) -> metadata.Metadata:
    groups = layout.samples * layout.groups
    return metadata.load(data[: layout.offsets[0]], groups, real_type(layout.dtype))
