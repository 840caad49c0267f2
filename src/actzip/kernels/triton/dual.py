"""Block averages and a group code: launches of device/dual.py; signatures as in reference/dual.py.

One launch for an encode when maps lie one after the other, two when they lie side by side; one for
a decode. `encode_into` and `decode_from` need no read by the host.
"""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from actzip.kernels.dual_layout import DualLayout
from actzip.kernels.errors import DamagedError
from actzip.kernels.reference import dual as reference
from actzip.kernels.triton import group, launch
from actzip.kernels.triton.device import dual as device
from actzip.kernels.triton.launch import TILE, power_of_two


def encode(x: Tensor, layout: DualLayout, seed: int | Tensor, data: Tensor) -> int | Tensor:
    if x.numel() == 0:
        return 0
    if _too_large(layout):
        return reference.encode(x, layout, seed, data)
    raw = torch.zeros(1, dtype=torch.int64, device=x.device)
    launch.with_aligned(data, lambda room: encode_into(x, layout, seed, room, raw))
    return raw


def encode_into(
    x: Tensor, layout: DualLayout, seed: int | Tensor, data: Tensor, raw: Tensor
) -> None:
    """Averages, metadata and codes into `data`, and the number of elements in raw maps added to
    `raw` (int64, on the device); `seed` may be an int64 on the device too."""
    means, lo, step, words, codes = _views(data, layout)
    rest, options = layout.rest, _options(layout, words)
    source, key = launch.elements(x), group.seed_of(seed)
    shape = {k: options[k] for k in ("MAP", "STRETCH", "ZERO", "REAL")}
    if not layout.channels:
        span = group.span_of(layout.size)
        wide = min(power_of_two(layout.size), TILE // 4)
        count = max(1, min(power_of_two(span), TILE // 4 // wide))
        lanes = max(32, min(power_of_two(span * layout.averages), 128))
        given = (source, means, lo, step, words, codes, raw, key, layout.maps, rest.n)
        sizes = {"SPAN": span, "LANES": lanes, "COUNT": count, "WIDE": wide, "BLOCKS": TILE // 64}
        launch.run(device.encode_maps, -(-layout.maps // span), *given, **sizes, **options)
        return
    span = min(power_of_two(layout.channels), 64)
    tiles = -(-layout.channels // span)
    levels = rest.levels(rest.bits[0])
    sizes = {"SPAN": span, "LANES": max(128, span), "WIDE": max(1, TILE // 2 // span)}
    launch.run(device.measure_last, tiles * rest.samples, source, means, lo, step, raw, tiles,
               rest.n, CHANNELS=layout.channels, LEVELS=levels, **sizes, **shape)  # fmt: skip
    tiles = -(-rest.n // (TILE // 2))
    launch.run(device.code_last, tiles * rest.samples, source, means, lo, step, words, codes, key,
               tiles, rest.n, CHANNELS=layout.channels, BLOCKS=TILE // 64, **options)  # fmt: skip


def store_raw(x: Tensor, layout: DualLayout, data: Tensor) -> None:
    if layout.channels:
        reference.store_raw(x, layout, data)
    else:
        group.store_raw(x, layout.rest, data[layout.averages_size :])


def decode(
    data: Tensor, layout: DualLayout, seed: int | Tensor, out: Tensor, trusted: bool = False
) -> None:
    if data.numel() < layout.averages_size + layout.rest.offsets[-1]:
        raise DamagedError(f"averages and codes need more than {data.numel()} bytes")
    if _too_large(layout):
        reference.decode(data, layout, seed, out)
    elif out.numel():
        decode_from(launch.aligned(data), layout, seed, out)


def decode_from(data: Tensor, layout: DualLayout, seed: int | Tensor, out: Tensor) -> None:
    """`decode` of bytes that are enough, at a multiple of 16; `seed` may be on the device."""
    means, lo, step, words, codes = _views(data, layout)
    options = _options(layout, words)
    del options["ALIGNED"], options["TAIL"]
    tiles = -(-layout.rest.n // TILE)
    given = (codes, means, lo, step, launch.elements(out), group.seed_of(seed))
    launch.run(device.decode_maps, tiles * layout.rest.samples, *given, tiles, layout.rest.n,
               CHANNELS=layout.channels, OCTETS=TILE // 8, **options)  # fmt: skip
    if data.numel() == layout.averages_size + layout.rest.offsets[-1]:
        return
    if layout.channels:
        reference.restore_raw(data, layout, out)
    else:
        group.with_filled(out, layout.rest, data[layout.averages_size :], store=False)


def nonzero(data: Tensor, layout: DualLayout, out: Tensor) -> None:
    group.nonzero(data[layout.averages_size :], layout.rest, out)


def _too_large(layout: DualLayout) -> bool:
    """Maps or samples that do not fit 32-bit distances: left to the reference."""
    return layout.rest.n >= 1 << 31 if layout.channels else group.too_large(layout.size)


def _views(data: Tensor, layout: DualLayout) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Averages, least values, steps, codes as words where they start at one, codes as bytes."""
    half = torch.int32 if layout.rest.meta_item == 4 else torch.int16
    start = layout.averages_size
    first, last = layout.rest.offsets[0], layout.rest.offsets[-1]
    means, meta = data[:start].view(half), data[start : start + first].view(half)
    codes = data[start + first : start + last]
    at_words = (start + first) % 4 == 0
    words = codes[: codes.numel() // 4 * 4].view(torch.int32) if at_words else codes
    return means, meta[: meta.numel() // 2], meta[meta.numel() // 2 :], words, codes


def _options(layout: DualLayout, words: Tensor) -> dict[str, Any]:
    axes = layout.axes
    options = group.code_options(layout.rest)
    options["ALIGNED"] &= words.dtype == torch.int32
    options["MAP"] = (
        *(axis.size for axis in axes),
        *(axis.k for axis in axes),
        *(axis.blocks for axis in axes),
    )
    options["STRETCH"] = axes[0].original
    options["REAL"] = tl.float64 if layout.rest.dtype == torch.float64 else tl.float32
    return options
