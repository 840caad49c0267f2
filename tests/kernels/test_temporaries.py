"""The plain-PyTorch kernels need little memory beside the tensor that they code."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

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
    Payload,
    Rectified,
    Split,
    Window,
    registered,
)
from actzip.memory.measure import live_peak

MOST = 3  #: times the bytes of the tensor


def values(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(32, 32, 16, 16, generator=torch.Generator().manual_seed(0)).relu().to(dtype)


def places() -> Tensor:
    return F.max_pool2d(values(), 2, return_indices=True)[1]


POOL = Window((2, 2), (2, 2), (0, 0), (1, 1), (16, 16))
EACH = tuple(1 + i % 8 for i in range(32))
CASES: list[tuple[Codec, Tensor]] = [
    (Group(2), values()),
    (Group(8, 100, zero=True), values(torch.bfloat16)),
    (Group(2, 1 << 30), values()),
    (Group(4, rounding="nearest"), values(torch.float64)),
    (Group(EACH), values()),
    (Group(EACH, zero=True), values(torch.float16)),
    (Dual(), values()),
    (Dual(zero=True), values(torch.float16)),
    (Dual(), values().to(memory_format=torch.channels_last)),
    (Dual(zero=True), values(torch.bfloat16).to(memory_format=torch.channels_last)),
    (BitMask(), values() > 0),
    (BitMask(), values(torch.float16)),
    (BitMask(on=2.0), (values() > 0).to(torch.float32) * 2.0),
    (POOL, places()),
    (Index(), places()),
    (Index(), places().to(torch.int16)),
    (Cast(), values()),
    (Cast(torch.float16), values()),
    (Keep(), values()),
    (Split(Group(2), 4), values()),
    (Bounded(0.01), values()),
    (FixedPoint(6), values()),
    (FixedPoint(4, skip_zeros=True), values(torch.float64)),
    (Group(2, entropy=True), values()),
    (Bounded(0.01), values(torch.bfloat16)),
    (Bounded((0.01,) * 32, predict="lorenzo"), values()),
    (Bounded((0.01,) * 32, predict="lorenzo"), values(torch.bfloat16)),
    (Bounded(0.1, entropy=True), values()),
    (Bounded(0.01, entropy=True), values(torch.bfloat16)),
    (Bounded((0.05,) * 32, predict="lorenzo", entropy=True), values()),
    (Dithered(0.4), values()),
    (Dithered(0.05), values(torch.float16)),
    (Centred((0.5,) * 32, 0.4), values()),
    (Rectified(0.4), values()),
]


@pytest.mark.parametrize(
    ("codec", "x"), CASES, ids=[f"{codec!r:.40} {x.dtype} {x.stride()}" for codec, x in CASES]
)
def test_temporaries(codec: Codec, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actzip.kernels.FORCED", "reference")
    assert max(used := temporaries(codec, x)) <= MOST, used


def temporaries(codec: Codec, x: Tensor) -> tuple[float, float]:
    """Of encode and of decode, beside the tensor and its payload, in parts of the tensor."""
    made: list[Payload] = []
    first = live_peak(lambda: made.append(codec.encode(x, seed=1)))
    second = live_peak(lambda: codec.decode(made[0]))
    return (first - made[0].data.nbytes) / x.nbytes, (second - x.nbytes) / x.nbytes


#: The entropy coder of the reference is numpy on the host.
IN_NUMPY: list[tuple[Codec, Tensor]] = [
    (Group(2, entropy=True), values()),
    (Bounded(0.01, entropy=True), values(torch.bfloat16)),
    (Dithered(0.05), values(torch.float16)),
]


@pytest.mark.parametrize(("codec", "x"), IN_NUMPY, ids=[f"{codec!r:.40}" for codec, _ in IN_NUMPY])
def test_temporaries_of_numpy(codec: Codec, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actzip.kernels.FORCED", "reference")
    payload = codec.encode(x, seed=1)
    on_host = host_peak(lambda: codec.encode(x, seed=1)), host_peak(lambda: codec.decode(payload))
    assert min(on_host) > 0
    assert max(on_host) <= MOST * x.nbytes, on_host


def host_peak(function: Callable[[], object]) -> int:
    """Bytes of numpy's arrays and of Python's objects; not of tensors."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_every_codec_is_here() -> None:
    assert {type(row[0]).__name__ for row in CASES} == set(registered())
