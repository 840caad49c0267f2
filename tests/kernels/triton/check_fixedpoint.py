"""Per-channel fixed point: bits, roundings, skipped zeros, values kept as they are."""

from __future__ import annotations

import random

import pytest
import torch
from agreement import QUIET, assert_same
from kernel_cases import FLOATS, ROUNDING, floats

from actzip.codecs import FixedPoint, PayloadError

pytestmark = QUIET
SHAPES = [(0,), (1,), (65,), (3, 5, 7, 9), (5, 3, 100)]


@pytest.mark.parametrize("rounding", ROUNDING)
@pytest.mark.parametrize("skip", [False, True])
def test_channels(rounding: str, skip: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"{rounding} {skip}")
    for shape, dtype in zip(SHAPES, (*FLOATS, torch.float32), strict=True):
        x = floats(rng, shape, dtype)
        bits: int | tuple[int, ...] = rng.randint(2, 16)
        dim = rng.choice([1, -1])
        if x.dim() > 1:
            bits = tuple(rng.randint(2, 16) for _ in range(x.shape[dim]))
        codec = FixedPoint(bits, skip, rounding, dim)
        assert_same(codec, x, rng.getrandbits(64), monkeypatch)


def test_values_that_are_no_numbers_in_two_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(4200).relu().half()
    x[5], x[700], x[4197] = float("nan"), float("inf"), -float("inf")
    assert_same(FixedPoint(5, skip_zeros=True), x, 9, monkeypatch)


def test_bytes_cut_short_do_not_crash() -> None:
    codec = FixedPoint(6, skip_zeros=True)
    payload = codec.encode(torch.randn(200))
    for size in (0, 11, 12, 40):
        cut = type(payload)(codec, (200,), (1,), torch.float32, 0, payload.data[:size].clone())
        try:
            assert codec.decode(cut).shape == (200,)
        except PayloadError:
            assert size < 29, "a bitmap and a step are the least that 200 elements take"
