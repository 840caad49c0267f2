"""The C++ library and its twin write the same bytes and read the same values from them.

Each test draws hundreds of codecs and tensors, and for each a number of threads and an
instruction set of the library; thousands of cases in all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from kernel_cases import MAKERS
from torch import Tensor

from actzip.codecs import Codec, Dithered, Dual, Group, Payload
from actzip.kernels.native import library

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
CASES = {"group": 150, "dual": 100, "mask": 150, "index": 150, "dithered": 12}


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    library.set_isa_level(-1)


def as_bits(x: Tensor) -> Tensor:
    return x.view(BITS[x.element_size()])


def run(codec: Codec, x: Tensor, seed: int) -> tuple[Payload, list[Tensor]]:
    payload = codec.encode(x, seed=seed)
    read = [codec.decode(payload)]
    if isinstance(codec, (Group, Dual)) and codec.zero:
        read.append(codec.mask(payload))
    return payload, read


@pytest.mark.parametrize("form", MAKERS)
@pytest.mark.parametrize("draw", range(5))
def test_library_equals_its_twin(form: str, draw: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"{form} {draw}")
    monkeypatch.setattr("actzip.codecs.dithered._SMALL", 1)
    for _ in range(CASES[form]):
        codec, x = MAKERS[form](rng)
        seed = rng.getrandbits(64)
        monkeypatch.setattr("actzip.kernels.FORCED", "reference")
        expected, values = run(codec, x, seed)
        monkeypatch.setattr("actzip.kernels.FORCED", "native")
        torch.set_num_threads(rng.choice([1, 2, 4, 8]))
        level = library.set_isa_level(rng.choice([0, 1, 2]))
        got, again = run(codec, x, seed)
        case = (codec, tuple(x.shape), x.dtype, seed, level, torch.get_num_threads())
        assert torch.equal(expected.data, got.data), case
        for one, other in zip(values, again, strict=True):
            assert torch.equal(as_bits(one), as_bits(other)), case


@pytest.mark.parametrize("draw", range(8))
def test_given_tables_are_used_alike(draw: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(draw)
    monkeypatch.setattr("actzip.codecs.dithered._SMALL", 1)
    codec, x = MAKERS["dithered"](rng)
    assert isinstance(codec, Dithered)
    seed, factor = rng.getrandbits(64), rng.choice([0.1, 1.0, 1.0, 30.0, 1e4])
    payloads, values = [], []
    for forced in ("reference", "native"):
        monkeypatch.setattr("actzip.kernels.FORCED", forced)
        torch.set_num_threads(rng.choice([1, 2, 8]))
        library.set_isa_level(rng.choice([0, 1, 2]))
        tabled = codec.tabled(x)
        payloads.append((tabled.table, tabled.encode(x * factor, seed=seed)))
        values.append(codec.decode(payloads[-1][1]))
    (one, first), (other, second) = payloads
    assert one == other
    assert torch.equal(first.data, second.data)
    assert torch.equal(as_bits(values[0]), as_bits(values[1]))


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_bytes_do_not_depend_on_threads_or_instruction_set(threads: int, level: int) -> None:
    x = torch.randn(300_001)
    expected = Group(bits=3).encode(x, seed=5)
    torch.set_num_threads(threads)
    library.set_isa_level(level)
    assert torch.equal(Group(bits=3).encode(x, seed=5).data, expected.data)
