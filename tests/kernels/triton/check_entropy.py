"""The entropy stage: counts, tables of every chain, spans that share their states, damage."""

from __future__ import annotations

import pytest
import torch
from agreement import assert_same

from actzip import kernels
from actzip.codecs import Group
from actzip.codecs.entropy import entropy_decode, entropy_encode
from actzip.kernels.errors import DamagedError
from actzip.kernels.triton import entropy


def _codes(n: int, spread: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n)
    return (torch.randn(n, generator=generator) * spread).abs().clamp(max=255).to(torch.uint8)


@pytest.mark.parametrize(
    ("n", "spread"), [(0, 1), (1, 1), (33, 2), (1000, 0.3), (3001, 50), (65536 + 40, 0.05)]
)
def test_codes(n: int, spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = _codes(n, spread)
    coded = entropy_encode(codes, 1 << 40)
    assert coded is not None
    for other in ("reference", "native"):
        monkeypatch.setattr(kernels, "FORCED", other)
        expected = entropy_encode(codes, 1 << 40)
        assert expected is not None
        assert torch.equal(coded, expected)
    monkeypatch.setattr(kernels, "FORCED", "triton")
    out = torch.empty_like(codes)
    entropy_decode(coded, out)
    assert torch.equal(out, codes)


def test_counts() -> None:
    codes = _codes(20_000, 40)
    assert entropy.count(codes) == torch.bincount(codes.long(), minlength=256).tolist()


def test_damaged_words_are_refused() -> None:
    codes = _codes(1000, 20)
    coded = entropy_encode(codes, 1 << 40)
    assert coded is not None
    coded[-3] ^= 8
    with pytest.raises(DamagedError, match="damaged"):
        entropy_decode(coded, torch.empty_like(codes))


def test_group_codes_are_squeezed_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(9000, generator=torch.Generator().manual_seed(3)).relu()
    assert_same(Group(2, entropy=True), x, 1, monkeypatch)
