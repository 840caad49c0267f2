"""Shorter floating types: rounding, saturation, NaN and infinities."""

from __future__ import annotations

import random

import pytest
import torch
from agreement import as_bits, assert_same
from kernel_cases import FLOATS, floats

from actzip import kernels
from actzip.codecs import Cast

EDGES = [0.0, -0.0, 65504.0, 65519.9, 65520.0, 3.3895e38, 3.4e38, -3.4e38, 1e-45, 6e-8, 3e-8, 1e-40]


@pytest.mark.parametrize("short", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", FLOATS)
def test_values_are_rounded_as_torch_does(
    short: torch.dtype, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"{short} {dtype}")
    for n in (0, 1, 33, 5001):
        x = floats(rng, (n,), dtype).nan_to_num(0.5)
        assert_same(Cast(short), x, 0, monkeypatch)
    assert_same(Cast(short), torch.tensor(EDGES, dtype=torch.float64).to(dtype), 0, monkeypatch)


@pytest.mark.parametrize("short", [torch.bfloat16, torch.float16])
def test_nan_and_infinity_come_back(short: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e39])
    y = Cast(short).decode(Cast(short).encode(x))
    assert y.isnan().tolist() == [True, False, False, False]
    monkeypatch.setattr(kernels, "FORCED", "reference")
    expected = Cast(short).decode(Cast(short).encode(x))
    assert torch.equal(as_bits(y[1:]), as_bits(expected[1:]))
