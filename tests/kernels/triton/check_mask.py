"""One bit per element: bool, ReLU's mask, dropout's noise."""

from __future__ import annotations

import random

import pytest
import torch
from agreement import assert_same
from kernel_cases import FLOATS, floats

from actzip.codecs import BitMask


@pytest.mark.parametrize("dtype", FLOATS)
def test_masks_of_floats(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(str(dtype))
    for n in (0, 1, 7, 9, 33, 20_001):
        x = floats(rng, (n,), dtype)
        assert_same(BitMask(), x, 0, monkeypatch)
        assert_same(BitMask(), x > 0, 0, monkeypatch)
        for on in (1.25, -3.0):
            assert_same(BitMask(on), (x > 0).to(dtype) * on + 0.0, 0, monkeypatch)


def test_a_third_value_is_refused() -> None:
    x = torch.tensor([0.0, 2.0, 0.0, -0.0])
    with pytest.raises(ValueError, match="exactly 0 and"):
        BitMask(2.0).encode(x)
