"""Dithered codes with given tables: the bytes of the reference and of the C++ library, launches
that are counted, no read by the host, and memory that does not depend on values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from agreement import QUIET, as_bits
from check_launches import launched
from torch import Tensor

from actzip import kernels
from actzip.codecs import Centred, Dithered, Payload, Rectified, unsettled
from actzip.kernels.dithered_tables import given
from actzip.kernels.triton.dithered_tables import Tables
from host_reads import counted
from stepping import like_a_gpu

pytestmark = QUIET
Coder = Dithered | Rectified | Centred


@pytest.fixture(autouse=True)
def _like_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    like_a_gpu(monkeypatch)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # fresh memory is full of numbers that nobody wants
    yield
    torch.use_deterministic_algorithms(before)


def _normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _assert_same(codec: Coder, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> Payload:
    """As written and read here without the host, elsewhere with its help."""
    _to_device(codec)
    with counted() as reads:
        payload = codec.encode(x, seed=7)
        y = codec.decode(payload)
    assert not reads
    assert payload.lengths
    assert payload.data.numel() == payload.lengths[0].reserved
    data = payload.used()
    monkeypatch.setattr(unsettled, "reading_is_free", lambda device: True)
    for other in ("reference", "native"):
        monkeypatch.setattr(kernels, "FORCED", other)
        expected = codec.encode(x, seed=7)
        assert torch.equal(expected.data, data), other
        assert torch.equal(as_bits(codec.decode(expected)), as_bits(y)), other
    return payload


def _to_device(codec: Coder) -> None:
    """The tables, which is done once."""
    inner = codec if isinstance(codec, Dithered) else getattr(codec, "_dithered", None)
    inner = inner or codec._coder
    Tables.of(inner._given, torch.device("cpu"))


def _tabled(codec: Coder, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> Coder:
    """With the table that all backends choose."""
    monkeypatch.setattr(kernels, "FORCED", "native")
    found = codec.tabled(x)
    monkeypatch.setattr(kernels, "FORCED", "triton")
    assert found.table
    assert codec.tabled(x).table == found.table
    return found


@pytest.mark.parametrize(
    ("codec", "dtype"),
    [
        (Dithered(0.4), torch.float32),
        (Dithered((0.2, 0.5, 1.0), origin=(0.0, 0.3, -1.0), coarser=2.0), torch.bfloat16),
        (Dithered(0.4, origin=0.1), torch.float64),
        (Rectified(0.3), torch.float16),
        (Centred((5.0, 0.0, -2.0), 0.4), torch.float32),
    ],
)
def test_the_same_bytes(codec: Coder, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    x = _normal(2, 3, 701).to(dtype)
    x = x.relu() if isinstance(codec, Rectified) else x
    tabled = _tabled(codec, x, monkeypatch)
    assert tabled == codec
    assert repr(tabled) == repr(codec)
    other = _normal(2, 3, 690, seed=1).to(dtype) * 1.1
    _assert_same(tabled, other.relu() if isinstance(codec, Rectified) else other, monkeypatch)


@pytest.mark.parametrize("codec", [Dithered(0.5), Dithered(0.5, origin=0.1)])
def test_values_that_the_table_does_not_know(
    codec: Dithered, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = _normal(4500)
    tabled, wild = _tabled(codec, x, monkeypatch), x.clone()
    wild[64:68] *= 300  # escaped
    wild[256:320] *= 3e4  # raw, as too large for 16 bits each
    wild[100], wild[1000], wild[4499] = float("nan"), 3e30, float("inf")
    payload = _assert_same(tabled, wild, monkeypatch)
    assert torch.equal(tabled.decode(payload)[256:320], wild[256:320])
    flags = int(payload.data[1])
    assert flags == 3, "levels and raw blocks"


def test_spans_share_states(monkeypatch: pytest.MonkeyPatch) -> None:
    x = _normal(65536 + 100, seed=5)
    tabled = _tabled(Dithered(8.0), x, monkeypatch)
    tabled = dataclasses.replace(tabled, table=bytes([2]) + tabled.table[1:])
    x[10], x[65_600], x[-1] = 40.0, float("inf"), 40.0
    _assert_same(tabled, x, monkeypatch)


def test_what_a_graph_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("codecs.unsettled", "codecs.lengths"):
        monkeypatch.setattr(f"actzip.{module}.is_capturing", lambda device: True)
    x = _normal(4200)
    tabled = _tabled(Dithered(0.4), x, monkeypatch)
    _to_device(tabled)
    wild = torch.cat([x[:4000], x[:200] * float("inf")])
    (first, one), (second, other) = (_ops(tabled, values, monkeypatch) for values in (x, wild))
    assert first == second
    assert one.data.numel() == other.data.numel()


def _ops(
    codec: Coder, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, int], Payload]:
    with counted() as reads, launched(monkeypatch) as found:
        payload = codec.encode(x, seed=3)
        codec.decode(payload)
    assert not reads
    return dict(found), payload


def test_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.use_deterministic_algorithms(False)  # else memory is filled
    x = _normal(4200).relu()
    tabled = _tabled(Dithered(0.4), x, monkeypatch)
    _to_device(tabled)
    with launched(monkeypatch) as written:
        payload = tabled.encode(x)
    unsettled.look()  # what is done once in a pass
    with launched(monkeypatch) as read:
        tabled.decode(payload)
    assert written == {"*code_spans": 1, "*encode_chains": 1, "*write_spans": 1}
    assert read == {"*part_spans": 1, "*read_chains": 1, "*read_values": 1}


def test_tables_are_kept_with_their_codec() -> None:
    codec = Dithered(0.4).tabled(_normal(4200))
    assert codec._given is not None
    assert codec._given.stored() == codec.table
    assert given(codec.table).contexts == codec._given.contexts
