"""More than 2^31 elements: the tail comes back right. Run by hand: pytest -m large (20 GB)."""

from __future__ import annotations

import pytest
import torch

from actzip.codecs import BitMask, Bounded, Codec, Dual, FixedPoint, Group, Index, Keep, Window

pytestmark = pytest.mark.large

MAPS = (2050, 16, 256, 256)  # 2.15e9 elements
TAIL = 256 * 256


@pytest.mark.parametrize(
    ("codec", "error"),
    [
        (Keep(), 0.0),
        (Group(bits=8), 0.03),
        (Group(bits=2, zero=True, entropy=True), 2.2),
        (Bounded(error=0.01), 0.01),
        (Bounded(error=0.01, entropy=True), 0.01),
        (FixedPoint(bits=8, skip_zeros=True), 0.08),
        (Dual(bits=8), 0.08),
    ],
    ids=repr,
)
def test_floats(codec: Codec, error: float) -> None:
    x = torch.zeros(MAPS, dtype=torch.bfloat16)
    tail = torch.randn(256, 256).bfloat16()
    x[-1, -1] = tail
    y = codec.decode(codec.encode(x, seed=1))
    del x
    assert not y[0, 0].any()
    assert float((y[-1, -1].float() - tail.float()).abs().max()) <= error


def test_masks() -> None:
    x = torch.zeros(MAPS, dtype=torch.bool)
    x[-1, -1] = torch.rand(256, 256) > 0.5
    codec = BitMask()
    assert torch.equal(codec.decode(codec.encode(x)), x)


def test_integers() -> None:
    x = torch.zeros(MAPS, dtype=torch.int8)
    x[-1, -1] = torch.randint(-100, 100, (256, 256), dtype=torch.int8)
    codec = Index()
    assert torch.equal(codec.decode(codec.encode(x)), x)


def test_windows_are_refused_before_their_indices_overflow() -> None:
    with pytest.raises(ValueError, match="use Index"):
        Window((2, 2), (2, 2), (0, 0), (1, 1), (1 << 16, 1 << 16))
