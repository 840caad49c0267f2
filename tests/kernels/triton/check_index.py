"""Integers of 1 to 64 bits, and their extremes."""

from __future__ import annotations

import random

import pytest
import torch
from agreement import assert_same
from kernel_cases import index

from actzip.codecs import Index
from actzip.kernels.triton import index as kernel


@pytest.mark.parametrize("draw", range(3))
def test_integers_of_every_type(draw: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(draw)
    for _ in range(12):
        codec, x = index(rng)
        assert_same(codec, x, 0, monkeypatch)


@pytest.mark.parametrize("bits", [1, 2, 7, 8, 9, 31, 32, 33, 57, 63, 64])
def test_every_width(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    half = 1 << (bits - 1)
    x = torch.randint(-half, half - 1 + (bits < 64), (333,))
    x[0], x[-1] = -half, half - 1
    assert kernel.extremes(x) == (-half, half - 1)
    assert_same(Index(), x, 0, monkeypatch)
