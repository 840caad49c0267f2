"""Block averages and the codes of what is left: 1-D to 3-D maps, both orders of memory."""

from __future__ import annotations

import random

import pytest
import torch
from agreement import QUIET, assert_same
from kernel_cases import FLOATS, ROUNDING, floats

from actzip.codecs import Dual

pytestmark = QUIET

SHAPES = [(2, 3, 37), (2, 40, 16, 8), (1, 3, 7, 9), (2, 4, 5, 6, 4), (2, 32, 8, 8)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("last", [False, True])
def test_maps(shape: tuple[int, ...], last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"{shape} {last}")
    for align in ("ceil", "original"):
        x = floats(rng, shape, rng.choice(FLOATS))
        if last:
            x = x.movedim(1, -1).contiguous().movedim(-1, 1)
        block, bits, zero = rng.choice([1, 2, 5, 8]), rng.randint(1, 8), rng.random() < 0.5
        codec = Dual(block, bits, align, rng.choice(ROUNDING), zero)
        assert_same(codec, x, rng.getrandbits(64), monkeypatch)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("zero", [False, True])
def test_raw_maps(zero: bool, last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 5, 8, 9).relu()
    x[0, 1, 3, 3], x[1, 4, 0, 0], x[1, 2] = float("nan"), -float("inf"), 1.5e37
    x = x.movedim(1, -1).contiguous().movedim(-1, 1) if last else x
    assert_same(Dual(8, 2, "original", zero=zero), x, 3, monkeypatch)


def test_wide_maps_share_their_averages_by_eights(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1, 3, 24, 16, dtype=torch.float32)
    assert_same(Dual(8, 2), x, 1, monkeypatch)
    assert_same(Dual(8, 4, zero=True), x.relu().half(), 1, monkeypatch)
