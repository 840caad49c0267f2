"""Bounded, FixedPoint and the entropy stage: the library equals its twin, byte for byte."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from kernel_cases import FLOATS, ROUNDING, floats
from torch import Tensor

from actzip.codecs import Codec
from actzip.codecs.bounded import Bounded
from actzip.codecs.entropy import entropy_encode
from actzip.codecs.fixedpoint import FixedPoint
from actzip.kernels.native import library

SHAPES = [(0,), (1,), (63,), (64,), (65,), (3, 5, 7, 9), (2, 4, 33, 40), (4097,), (5, 3, 100)]
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    library.set_isa_level(-1)


def bounded(rng: random.Random) -> tuple[Codec, Tensor]:
    x = floats(rng, rng.choice(SHAPES), rng.choice(FLOATS))
    if rng.random() < 0.3:
        x = x.flatten().double().nan_to_num(0, 0, 0).cumsum(0).view(x.shape).to(x.dtype)
    top = float(x.double().nan_to_num(0, 0, 0).abs().max()) if x.numel() else 1.0
    error = max(1e-30, min(1e30, top * 10 ** rng.uniform(-6, 0.5)))
    errors: float | tuple[float, ...] = error
    dim = rng.choice([1, -1])
    if x.dim() > 1 and rng.random() < 0.3:
        errors = tuple(error * rng.uniform(0.01, 1) for _ in range(x.shape[dim]))
    predict = rng.choice([None, None, "lorenzo"])
    return Bounded(errors, rng.choice(["dither", "nearest"]), rng.random() < 0.5, predict, dim), x


def fixedpoint(rng: random.Random) -> tuple[Codec, Tensor]:
    x = floats(rng, rng.choice(SHAPES), rng.choice(FLOATS))
    bits: int | tuple[int, ...] = rng.randint(2, 16)
    dim = rng.choice([1, -1])
    if x.dim() > 1 and rng.random() < 0.5:
        bits = tuple(rng.randint(2, 16) for _ in range(x.shape[dim]))
    return FixedPoint(bits, rng.random() < 0.5, rng.choice(ROUNDING), dim), x


MAKERS = {"bounded": bounded, "fixedpoint": fixedpoint}


@pytest.mark.parametrize("form", MAKERS)
@pytest.mark.parametrize("draw", range(6))
def test_library_equals_its_twin(form: str, draw: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"{form} {draw}")
    for _ in range(100):
        codec, x = MAKERS[form](rng)
        seed = rng.getrandbits(64)
        monkeypatch.setattr("actzip.kernels.FORCED", "reference")
        expected = codec.encode(x, seed=seed)
        values = codec.decode(expected)
        monkeypatch.setattr("actzip.kernels.FORCED", "native")
        torch.set_num_threads(rng.choice([1, 2, 4, 8]))
        level = library.set_isa_level(rng.choice([0, 1, 2]))
        got = codec.encode(x, seed=seed)
        case = (codec, tuple(x.shape), x.dtype, seed, level, torch.get_num_threads())
        assert torch.equal(expected.data, got.data), case
        bits = BITS[x.element_size()]
        assert torch.equal(codec.decode(got).view(bits), values.view(bits)), case


@pytest.mark.parametrize("draw", range(3))
def test_entropy_stage_equals_its_twin(draw: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(draw)
    for _ in range(15):
        n = rng.choice([0, 1, 33, 1000, 65536, 140_000])
        spread = 10 ** rng.uniform(-1, 2)
        codes = (torch.randn(n) * spread).abs().clamp(max=255).to(torch.uint8)
        monkeypatch.setattr("actzip.kernels.FORCED", "reference")
        expected = entropy_encode(codes, 1 << 40)
        monkeypatch.setattr("actzip.kernels.FORCED", "native")
        torch.set_num_threads(rng.choice([1, 2, 4, 8]))
        library.set_isa_level(rng.choice([0, 1, 2]))
        got = entropy_encode(codes, 1 << 40)
        assert expected is not None
        assert got is not None
        assert torch.equal(expected, got), (n, spread)


@pytest.mark.parametrize("part", [0.5, 0.003])
def test_sampled_table_gives_the_same_bytes_on_both_backends(
    part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(600_000)  # enough chunks that the table is made from every eighth
    x[300_000:300_100] *= 1000  # codes that the table has not seen
    codec = Bounded(error=part, entropy=True)
    got = codec.encode(x, seed=5)
    assert int(got.data[0]) == 1
    assert float((codec.decode(got) - x).abs().max()) <= part
    monkeypatch.setattr("actzip.kernels.FORCED", "reference")
    assert torch.equal(codec.encode(x, seed=5).data, got.data)


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize(
    "codec",
    [Bounded(), Bounded(entropy=True), Bounded(predict="lorenzo"), FixedPoint(skip_zeros=True)],
    ids=repr,
)
def test_bytes_do_not_depend_on_threads_or_instruction_set(
    codec: Codec, level: int, threads: int
) -> None:
    x = torch.randn(3, 2, 50_001, generator=torch.Generator().manual_seed(0)).relu()
    expected = codec.encode(x, seed=5)
    torch.set_num_threads(threads)
    library.set_isa_level(level)
    assert torch.equal(codec.encode(x, seed=5).data, expected.data)
    assert torch.equal(codec.decode(expected), codec.decode(expected))
