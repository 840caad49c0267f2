"""Per-channel fixed point: launches of device/fixedpoint.py; signatures as in
reference/fixedpoint.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import SPARE
from actzip.kernels.errors import DamagedError
from actzip.kernels.fixedpoint_layout import FixedPointLayout
from actzip.kernels.triton import launch
from actzip.kernels.triton.device import fixedpoint as device
from actzip.kernels.triton.group import seed_of
from actzip.kernels.triton.launch import TILE, power_of_two

_INTS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def largest(x: Tensor, layout: FixedPointLayout) -> Tensor:
    """The largest finite magnitude of each channel."""
    channels, inner = len(layout.bits), layout.inner
    found = torch.zeros(channels, dtype=_INTS[layout.real.itemsize], device=x.device)
    outer = layout.n // (channels * inner)
    many = min(power_of_two(channels), max(1, TILE // 2 // power_of_two(inner)))
    deep = min(power_of_two(inner), max(1, TILE // 2 // many))
    slices = min(outer, 64)
    given = (launch.elements(x), found, outer, channels, inner, slices)
    programs = -(-channels // many) * slices if x.numel() else 0
    launch.run(device.largest, programs, *given, CT=many, IT=deep)
    return found.view(layout.real)


def encode(
    x: Tensor, layout: FixedPointLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor:
    if not layout.n:
        room = allocate(layout.steps_size)
        room.copy_(layout.steps(largest(x, layout)).view(torch.uint8))
        return room
    room = torch.empty(layout.worst_case + SPARE, dtype=torch.uint8, device=x.device)
    size = int(encode_within(x, layout, seed, room))
    return allocate(size).copy_(room[:size])


def encode_within(x: Tensor, layout: FixedPointLayout, seed: int | Tensor, data: Tensor) -> Tensor:
    """`data` begins at a multiple of 16."""
    most = largest(x, layout)
    steps, limits = layout.steps(most), layout.limits(most)
    sizes = torch.empty(layout.chunks, dtype=torch.int64, device=x.device)
    measure_into(x, layout, seed, steps, limits, sizes)
    begins, start = sizes.cumsum(0) - sizes, layout.steps_size + 8 * layout.chunks
    words = data[: data.numel() // 4 * 4].view(torch.int32)
    words[start // 4 :].zero_()
    data[: layout.steps_size] = steps.view(torch.uint8)
    data[layout.steps_size : start] = begins.view(torch.uint8)
    write_into(x, layout, seed, steps, limits, begins, words)
    return sizes.sum() + start


def measure_into(
    x: Tensor, layout: FixedPointLayout, seed: int | Tensor, steps: Tensor, limits: Tensor,
    sizes: Tensor,
) -> None:  # fmt: skip
    """The bytes of each chunk into `sizes` (int64), without the host's read."""
    per_channel = (steps, _inverse(steps), limits, _bits(layout, x.device))
    given = (launch.elements(x), *per_channel, sizes, sizes)
    launch.run(device.encode_chunks, layout.chunks, *given, seed_of(seed), *_sizes(layout), 0,
               warps=8, WRITE=False, **_options(layout))  # fmt: skip


def write_into(
    x: Tensor, layout: FixedPointLayout, seed: int | Tensor, steps: Tensor, limits: Tensor,
    begins: Tensor, words: Tensor,
) -> None:  # fmt: skip
    """Chunks into `words` (int32, zeros), behind the places of steps and offsets."""
    start = layout.steps_size + 8 * layout.chunks
    per_channel = (steps, _inverse(steps), limits, _bits(layout, x.device))
    given = (launch.elements(x), *per_channel, begins, words)
    warps = 8 if x.dtype == torch.float64 else 16  # so many that nothing spills
    launch.run(device.encode_chunks, layout.chunks, *given, seed_of(seed), *_sizes(layout), start,
               warps=warps, WRITE=True, **_options(layout))  # fmt: skip


def decode(
    data: Tensor, layout: FixedPointLayout, seed: int, out: Tensor, trusted: bool = False
) -> None:
    start = layout.steps_size + 8 * layout.chunks
    if data.numel() < start:
        raise DamagedError(f"fixedpoint_decode: {data.numel()} bytes are too few")
    decode_from(data, layout, seed, out)


def decode_from(data: Tensor, layout: FixedPointLayout, seed: int | Tensor, out: Tensor) -> None:
    """`decode` of bytes that hold at least steps and offsets; `seed` may be on the device."""
    start = layout.steps_size + 8 * layout.chunks
    steps = data[: layout.steps_size].clone().view(layout.real)
    begins = data[layout.steps_size : start].clone().view(torch.int64)
    body = data[start:]
    given = (body, steps, _bits(layout, data.device), begins, launch.elements(out))
    raw = out.view(_INTS[out.element_size()])
    launch.run(device.decode_chunks, layout.chunks, *given, raw, seed_of(seed), *_sizes(layout),
               body.numel(), warps=2, **_options(layout))  # fmt: skip


def _inverse(steps: Tensor) -> Tensor:
    return torch.where(steps > 0, 1.0 / steps, torch.zeros_like(steps))


def _sizes(layout: FixedPointLayout) -> tuple[int, int, int]:
    return layout.n, layout.inner, len(layout.bits)


@functools.lru_cache(maxsize=64)
def _bits(layout: FixedPointLayout, on: torch.device) -> Tensor:
    return torch.tensor(layout.bits, dtype=torch.uint8, device=on)


def _options(layout: FixedPointLayout) -> dict[str, Any]:
    return {
        "SKIP": layout.skip_zeros,
        "ROUNDING": layout.rounding,
        "LARGE": layout.n >= 1 << 31,
        "LONG": layout.n >= 1 << 33,
    }
