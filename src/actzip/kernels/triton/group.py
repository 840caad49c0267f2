"""Group codes: launches of device/group.py; signatures as in reference/group.py.

`encode_into` is `encode` without the host's read: what is raw is counted on the device.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from actzip.kernels.errors import DamagedError
from actzip.kernels.group_layout import GroupLayout
from actzip.kernels.reference import group as reference
from actzip.kernels.triton.device import group as device
from actzip.kernels.triton.launch import (
    TILE,
    aligned,
    elements,
    octets,
    power_of_two,
    run,
    signed,
    with_aligned,
)

#: The largest group that a program keeps in registers.
_HELD = 8192
#: Elements from which on the keys of the dither change within a tensor.
_LONG = 1 << 33


def encode(x: Tensor, layout: GroupLayout, seed: int | Tensor, data: Tensor) -> int | Tensor:
    if layout.n == 0 or layout.samples == 0:
        return 0
    if too_large(layout.group):
        return reference.encode(x, layout, seed, data)
    count = torch.zeros(1, dtype=torch.int64, device=x.device)
    with_aligned(data, lambda room: encode_into(x, layout, seed, room, count))
    return count


#: The bits of a step that makes its group NaN, and is not the mark of a raw one.
_NAN = {torch.int16: 0x7FC0, torch.int32: 0x7FF80000}


def encode_into(
    x: Tensor, layout: GroupLayout, seed: int | Tensor, data: Tensor, raw: Tensor
) -> None:
    """Metadata and codes into `data`, and the number of elements in raw groups added to `raw`
    (int64, on the device); `seed` may be an int64 on the device too."""
    lo, step, words, codes = views(data, layout)
    given = (elements(x), lo, step, words, codes, *tables(layout, x.device), raw, seed_of(seed))
    sizes = (layout.n, layout.groups)
    group, coding = layout.group, code_options(layout)
    if group % 32 == 0 and group <= _HELD:
        count = power_of_two(max(1, TILE // power_of_two(group) + 1)) // 2 or 1
        tiles = -(-layout.groups // count)
        wide = power_of_two(group)
        options: dict[str, Any] = {"GROUP": group, "WIDE": wide, "COUNT": count, **coding}
        warps = 4 if wide * count <= 4096 else 8
        run(device.encode_tiles, tiles * layout.samples, *given, *sizes, tiles, **options,
            warps=warps)  # fmt: skip
        return
    span = span_of(group)
    wide = min(power_of_two(group), TILE // 2)
    count = max(1, min(power_of_two(span), TILE // 2 // wide))
    tiles = -(-layout.groups // span)
    options = {"GROUP": group, "SPAN": span, "COUNT": count, "WIDE": wide, "BLOCKS": TILE // 64}
    real = tl.float64 if layout.dtype == torch.float64 else tl.float32
    run(device.encode_spans, tiles * layout.samples, *given, *sizes, tiles, **options, **coding,
        REAL=real)  # fmt: skip


def store_raw(x: Tensor, layout: GroupLayout, data: Tensor) -> None:
    if x.numel() == 0:
        return
    if data.data_ptr() % 4 == 0 and data.storage_offset() % 4 == 0:
        with_filled(x, layout, data, store=True)
    else:
        copy = data.clone()
        with_filled(x, layout, copy, store=True)
        data.copy_(copy)


def decode(
    data: Tensor, layout: GroupLayout, seed: int | Tensor, out: Tensor, trusted: bool = False
) -> None:
    _check(data, layout)
    if out.numel():
        decode_from(aligned(data), layout, seed, out)


def decode_from(data: Tensor, layout: GroupLayout, seed: int | Tensor, out: Tensor) -> None:
    """`decode` of bytes that are enough, at a multiple of 16; `seed` may be on the device."""
    _decode(data, layout, seed, out, mask=False)
    if data.numel() > layout.offsets[-1]:
        with_filled(out, layout, data, store=False)


def nonzero(data: Tensor, layout: GroupLayout, out: Tensor) -> None:
    _check(data, layout)
    if out.numel():
        _decode(aligned(data), layout, 0, out, mask=True)


def _check(data: Tensor, layout: GroupLayout) -> None:
    if data.numel() < layout.offsets[-1]:
        raise DamagedError(f"group codes need {layout.offsets[-1]} bytes, got {data.numel()}")


def _decode(
    data: Tensor, layout: GroupLayout, seed: int | Tensor, out: Tensor, *, mask: bool
) -> None:
    lo, step, _, codes = views(data, layout)
    octets = TILE // 8
    tiles = -(-layout.n // TILE)
    given = (codes, lo, step, *tables(layout, out.device), elements(out), seed_of(seed))
    coding = code_options(layout)
    del coding["ALIGNED"], coding["TAIL"]
    options = {"GROUP": layout.group, "OCTETS": octets, "MASK": mask, **coding}
    run(device.decode_tiles, tiles * layout.samples, *given, layout.n, layout.groups, tiles,
        **options)  # fmt: skip


def with_filled(x: Tensor, layout: GroupLayout, data: Tensor, *, store: bool) -> None:
    """Moves the elements of raw groups from x behind the codes of `data`, or back; one launch."""
    start, end = layout.offsets[0], layout.offsets[-1]
    if not store:
        data = aligned(data)
    half = torch.int32 if layout.meta_item == 4 else torch.int16
    step, room, item = data[start // 2 : start].view(half), data[end:], x.element_size()
    options = {"GROUP": layout.group * item, "WIDE": min(power_of_two(layout.group * item), TILE)}
    sizes = (layout.n * item, layout.groups, step.numel(), room.numel())
    run(device.move_raw, 1, octets(x), room, step, *sizes, **options, SIZE=TILE // 2,
        NAN=_NAN[half], STORE=store, warps=8)  # fmt: skip


def views(data: Tensor, layout: GroupLayout) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Least values, steps, codes as words and as bytes, of a payload at a multiple of 16."""
    start, end = layout.offsets[0], layout.offsets[-1]
    half = torch.int32 if layout.meta_item == 4 else torch.int16
    meta = data[:start].view(half)
    codes = data[start:end]
    words = codes[: codes.numel() // 4 * 4].view(torch.int32)
    return meta[: meta.numel() // 2], meta[meta.numel() // 2 :], words, codes


def code_options(layout: GroupLayout) -> dict[str, Any]:
    """What the layout says of the codes, as kernels take it."""
    same = len(set(layout.bits)) == 1
    sizes = (b - a for a, b in zip(layout.offsets[:-2], layout.offsets[1:-1], strict=True))
    padded = -(-layout.n // 32) * 32
    return {
        "BITS": layout.bits[0] if same else 0,
        "ROUNDING": layout.rounding,
        "ZERO": layout.zero,
        "ALIGNED": all(size % 4 == 0 for size in sizes),
        "TAIL": layout.n % 32 != 0,
        "LONG": padded * layout.samples >= _LONG,
    }


def tables(layout: GroupLayout, on: torch.device) -> tuple[Tensor, Tensor]:
    """Bits and offsets of the rows on the device; kept, as copying them is a launch of its own.
    Rows of one number of bits need none: what is given is not read."""
    return _tables(layout, on) if len(set(layout.bits)) > 1 else _none(on)


@functools.lru_cache(maxsize=64)
def _tables(layout: GroupLayout, on: torch.device) -> tuple[Tensor, Tensor]:
    bits = torch.tensor(layout.bits, dtype=torch.uint8, device=on)
    return bits, torch.tensor(layout.offsets, dtype=torch.int64, device=on)


@functools.cache
def _none(on: torch.device) -> tuple[Tensor, Tensor]:
    nothing = torch.zeros(1, dtype=torch.int64, device=on)
    return nothing.view(torch.uint8), nothing


def too_large(group: int) -> bool:
    """Groups of which a program's do not fit 32-bit distances: left to the reference."""
    return span_of(group) * group >= 1 << 31


def span_of(group: int) -> int:
    """Groups of a program: whole blocks of 32, and elements enough to be worth one."""
    least = 32 // math.gcd(group, 32)
    return least * max(1, TILE // (least * group))


def seed_of(seed: int | Tensor) -> int | Tensor:
    """A seed as kernels take it: a number, or an int64 on the device."""
    return signed(seed) if isinstance(seed, int) else seed
