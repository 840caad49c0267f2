"""Whether codecs keep their promises on a device, and write the bytes that they write elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from actzip import kernels
from actzip.codecs import (
    BitMask,
    Bounded,
    Cast,
    Centred,
    Codec,
    Dithered,
    Dual,
    FixedPoint,
    Group,
    Index,
    Keep,
    Rectified,
    Window,
)
from actzip.doctor.finding import REPORT, Finding, examine
from actzip.testing import Promise, conformance, inputs

_ROUNDINGS = ("dither", "stochastic", "nearest")
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def _mask(codec: Codec, x: Tensor, y: Tensor) -> None:
    """What BitMask promises of floating tensors: a ReLU's mask."""
    assert torch.equal(y, x if x.dtype == torch.bool else (~(x <= 0)).to(x.dtype)), "a bit is wrong"


#: Those that the kit is for; the others are for certain tensors only, and are compared below.
KIT: tuple[tuple[Codec, Promise | None], ...] = (
    (Keep(), None),
    (Index(), None),
    (BitMask(), _mask),
    (Cast(torch.bfloat16), None),
    (Group(bits=2), None),
    (Group(bits=3, zero=True), None),
    (Dual(), None),
    (FixedPoint(bits=6), None),
    (Bounded(error=1e-2), None),
    (Bounded(error=1e-2, entropy=True), None),
)


def promises(device: torch.device, kit: tuple[tuple[Codec, Promise | None], ...]) -> list[Finding]:
    """The conformance kit on the device."""
    return [
        examine(f"promises of {codec!r}", REPORT, lambda c=codec, p=promise: conformance(  # type: ignore[misc]
            c, promise=p, device=device))
        for codec, promise in kit
    ]  # fmt: skip


def cases(elements: int) -> Iterator[tuple[Codec, Tensor]]:
    """Codecs and tensors of about so many elements, in host memory: each format, its options, and
    the values that break kernels."""
    made = torch.Generator().manual_seed(1)
    side = max(4, int((elements / 64) ** 0.5))
    flat = torch.randn(elements, generator=made)
    maps = torch.randn(4, 16, side, side + 1, generator=made)
    for bits in range(1, 9):
        rounding, zero = _ROUNDINGS[bits % 3], bits % 2 == 0
        for dtype in _FLOATS:
            yield (
                Group(bits, rounding=rounding, zero=zero),
                (flat.relu() if zero else flat).to(dtype),
            )
        yield Dual(8, bits, rounding=rounding, zero=zero), maps
    yield Group((1, 3, 8, 2), 100), maps
    yield Group(2), maps.to(memory_format=torch.channels_last)
    yield Dual(8, 2), maps.to(memory_format=torch.channels_last)
    for _, odd in inputs.special(flat[:3000]):
        yield Group(2), odd
        yield Bounded(1e-2), odd
    yield BitMask(), flat
    yield BitMask(), flat > 0
    yield Index(), (flat * 1000).long()
    yield Cast(torch.bfloat16), flat
    yield FixedPoint(5), maps
    yield FixedPoint(8, skip_zeros=True), maps.relu()
    yield Bounded(1e-2), maps.half()
    yield Bounded(1e-1, entropy=True), flat.relu()
    yield Dithered(2.0), flat
    yield Dithered(2.0, origin=0.25), maps
    yield Centred((0.5,) * maps.shape[1], 2.0), maps
    yield Rectified(0.5), flat.relu()
    _, places = F.max_pool2d(maps, 3, 2, 1, return_indices=True)
    yield Window((3, 3), (2, 2), (1, 1), (1, 1), tuple(maps.shape[2:])), places


def equal_bytes(device: torch.device, elements: int) -> Iterator[Finding]:
    """The device's kernels against plain PyTorch's on the CPU, byte for byte and bit for bit."""
    for codec, x in cases(elements):
        what = f"bytes of {codec!r}, {str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"
        yield examine(what, REPORT, lambda c=codec, t=x: _compare(c, t, device))  # type: ignore[misc]


def _compare(codec: Codec, x: Tensor, device: torch.device) -> None:
    there = x.to(device)
    payload = codec.encode(there, seed=5)
    values = codec.decode(payload).cpu()
    with _reference():
        expected = codec.encode(x, seed=5)
        read = codec.decode(expected)
    mine, theirs = payload.used().cpu(), expected.used()
    sizes = f"{mine.numel()} bytes, the reference wrote {theirs.numel()}"
    assert mine.numel() == theirs.numel(), sizes
    other = (mine != theirs).nonzero()
    assert not len(other), f"{len(other)} of {sizes}; the first that differs is {int(other[0])}"
    same = torch.equal(values.contiguous().view(torch.uint8), read.contiguous().view(torch.uint8))
    assert same, "the same bytes are read as other values than the reference reads"


@contextmanager
def _reference() -> Iterator[None]:
    """Plain PyTorch's kernels, whatever else is there."""
    before, kernels.FORCED = kernels.FORCED, "reference"
    try:
        yield
    finally:
        kernels.FORCED = before
