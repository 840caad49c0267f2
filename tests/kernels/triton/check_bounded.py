"""Error-bounded codes: plain, bitmap, differences, raw blocks; errors per channel."""

from __future__ import annotations

import random

import pytest
import torch
from agreement import QUIET, assert_same
from kernel_cases import FLOATS, floats

from actzip import kernels
from actzip.codecs import Bounded, FixedPoint
from actzip.kernels.bounded_layout import SPARE, worst_case

pytestmark = QUIET
SHAPES = [(0,), (1,), (65,), (3, 5, 7, 9), (2, 4, 33, 20)]
MAPS = [(0,), (1,), (65,), (3, 2, 7, 9), (2, 33, 66)]


@pytest.mark.parametrize("rounding", ["dither", "nearest"])
@pytest.mark.parametrize("predict", [None, "lorenzo"])
def test_values_of_every_kind(
    rounding: str, predict: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"{rounding} {predict}")
    for shape, dtype in zip(MAPS if predict else SHAPES, (*FLOATS, torch.float32), strict=True):
        x = floats(rng, shape, dtype)
        top = float(x.double().nan_to_num(0, 0, 0).abs().max()) if x.numel() else 1.0
        error = max(1e-30, min(1e30, top * 10 ** rng.uniform(-5, 0.5)))
        errors: float | tuple[float, ...] = error
        if x.dim() > 1 and rng.random() < 0.5:
            errors = tuple(error * rng.uniform(0.01, 1) for _ in range(x.shape[1]))
        assert_same(Bounded(errors, rounding, False, predict), x, rng.getrandbits(64), monkeypatch)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_way_to_pack_a_block(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(4200).relu()
    x[500:1500] = torch.arange(1000) * 0.5 + torch.randn(1000) * 0.01  # differences are shorter
    x[2000:2300] = torch.randn(300)
    x[3000:3010] = 3e30  # too large for the error: raw
    x[4198] = float("nan")
    codec = Bounded(0.02)
    headers = codec.encode(x.to(dtype)).data[16 : 16 + 66]
    kinds = {int(h) // 32 for h in headers if int(h) != 255}
    assert int((headers == 255).sum()) >= 2
    assert kinds >= ({1, 2, 4} if dtype == torch.float32 else {1, 2})
    assert_same(codec, x.to(dtype), 5, monkeypatch)


@pytest.mark.parametrize(("height", "width"), [(11, 28), (5, 70)])
def test_differences_in_maps_among_other_blocks(
    height: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = torch.Generator().manual_seed(width)
    x = torch.randn(2, 1, height, width, generator=rng) * 0.02
    x += torch.arange(width) * 0.5 + torch.arange(height).view(-1, 1) * 0.7 + 1
    x[1, 0, 1:3] = torch.randn(2, width, generator=rng).relu()
    x[0, 0, 1, 3] = float("nan")
    codec = Bounded(0.05, predict="lorenzo")
    blocks = -(-x.numel() // 64)
    kinds = [int(h) // 32 for h in codec.encode(x).data[8 : 8 + blocks]]
    assert kinds.count(4) > 1
    assert len(set(kinds)) > 2
    assert_same(codec, x, 5, monkeypatch)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n", [65, 4200])
def test_bytes_within_memory_for_the_worst_case(dtype: torch.dtype, n: int) -> None:
    """Whatever was there before: headers end anywhere in a word."""
    x = torch.randn(n).to(dtype)
    x[n // 2 :] *= 1e9  # raw blocks
    for form, codec, worst in (
        ("bounded", Bounded(0.01), worst_case),
        ("fixedpoint", FixedPoint(5), lambda layout: layout.worst_case),
    ):
        layout = codec._layout(x)
        data = torch.full((worst(layout) + SPARE,), 255, dtype=torch.uint8)
        size = int(kernels.of(x, form).encode_within(x, layout, 7, data))
        assert torch.equal(data[:size], codec.encode(x, seed=7).data)
