"""Error-bounded codes with the entropy stage: every kind, levels, raw blocks, escapes, damage."""

from __future__ import annotations

import pytest
import torch
from agreement import QUIET, assert_same

from actzip import kernels
from actzip.codecs import Bounded
from actzip.codecs.base import PayloadError

pytestmark = QUIET


def _smooth(n: int, noise: float) -> torch.Tensor:
    rng = torch.Generator().manual_seed(n)
    t = torch.arange(n, dtype=torch.float64)
    return (t * 0.01).sin() * 3 + torch.randn(n, generator=rng, dtype=torch.float64) * noise


@pytest.mark.parametrize(
    ("dtype", "rounding", "predict"),
    [
        (torch.float32, "dither", None),
        (torch.bfloat16, "nearest", "lorenzo"),
        (torch.float16, "dither", None),
        (torch.float64, "nearest", None),
    ],
)
def test_each_kind(
    dtype: torch.dtype, rounding: str, predict: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = set()
    rng = torch.Generator().manual_seed(1)
    signed = torch.randn(4500, generator=rng, dtype=torch.float64)
    for values in (signed, signed.relu(), _smooth(4480, 0.002).view(2, 10, 224)):
        codec = Bounded(0.02, rounding, True, predict)
        x = values.to(dtype)
        data = codec.encode(x, seed=7).data
        assert int(data[0]) == 1, "entropy-coded"
        kinds.add(int(data[1]) & 7)
        assert_same(codec, x, 7, monkeypatch)
    assert len(kinds) >= 2


def test_raw_blocks_levels_and_codes_that_no_table_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(4500, generator=torch.Generator().manual_seed(2))
    x[100], x[1000] = float("nan"), 3e30
    x[4300:4303] = torch.tensor([700.0, -40000.0, 3.0])  # another level, large codes
    codec = Bounded(0.05, entropy=True)
    flags = int(codec.encode(x).data[1])
    assert flags & 8
    assert flags & 16
    assert_same(codec, x, 3, monkeypatch)


def test_spans_share_states(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(65536 + 100)
    x[::97] = torch.randn(len(x[::97]), generator=torch.Generator().manual_seed(5))
    x[65_600] = float("inf")
    assert_same(Bounded(0.5, entropy=True), x, 4, monkeypatch, others=("native",))


def test_plain_packing_where_it_is_shorter_and_nothing_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for x in (torch.randn(50), torch.randn(0)):
        assert_same(Bounded(0.1, entropy=True), x, 1, monkeypatch)


def test_damaged_bytes_are_refused() -> None:
    codec = Bounded(0.1, entropy=True)
    payload = codec.encode(torch.randn(2500))
    assert kernels.backend_of("cpu", "bounded_entropy") == "triton"
    payload.data[-40] ^= 255
    with pytest.raises(PayloadError, match="damaged"):
        codec.decode(payload)
