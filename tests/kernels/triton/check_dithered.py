"""Dithered codes: types, sides, channels, groups, escapes, levels, raw blocks, chains, damage."""

from __future__ import annotations

import pytest
import torch
from agreement import QUIET, assert_same

from actzip import kernels
from actzip.codecs import Codec, Dithered, Rectified
from actzip.codecs.base import PayloadError

pytestmark = QUIET


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("codec", "dtype"),
    [
        (Dithered(0.05), torch.float32),
        (Dithered(0.6), torch.bfloat16),
        (Dithered((0.2, 0.5, 1.0), origin=(0.0, 0.3, -1.0), coarser=2.0), torch.float16),
        (Dithered(3.0), torch.float64),
        (Rectified(0.3), torch.bfloat16),
        (Rectified(0.3), torch.float32),
    ],
)
def test_types_and_sides(codec: Codec, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    x = _normal(2, 3, 701).to(dtype)
    x = x.relu() if isinstance(codec, Rectified) else x
    assert int(codec.encode(x, seed=7).data[0]) == 2, "not left to Bounded"
    assert_same(codec, x, 7, monkeypatch)


@pytest.mark.parametrize("codec", [Dithered(0.4), Dithered(0.4, origin=0.1)])
def test_raw_blocks_levels_and_codes_that_no_table_holds(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = _normal(4500, seed=2)
    x[100], x[1000], x[4499] = float("nan"), 3e30, float("inf")
    x[4300:4303] = torch.tensor([700.0, -40000.0, 3.0])  # another level, large codes
    assert_same(codec, x, 3, monkeypatch, others=("reference",))


def test_spans_share_states(monkeypatch: pytest.MonkeyPatch) -> None:
    x = _normal(65536 + 100, seed=5)
    x[10], x[65_600] = 40.0, float("inf")
    assert_same(Dithered(8.0), x, 4, monkeypatch, others=("native",))


def test_damaged_bytes_are_refused() -> None:
    codec = Dithered(0.3)
    payload = codec.encode(_normal(4200))
    assert kernels.backend_of("cpu", "dithered") == "triton"
    payload.data[-40] ^= 255
    with pytest.raises(PayloadError, match="damaged"):
        codec.decode(payload)
