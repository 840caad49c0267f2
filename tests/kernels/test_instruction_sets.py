"""Every entry of the library, in each instruction set that this machine has, equals the reference.

A machine with AVX-512 has all of them, so one that runs the suite tests them all.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from actzip import kernels
from actzip.codecs import BitMask, Bounded, Codec, Dithered, Dual, FixedPoint, Group, Index, Window
from actzip.kernels.native import library

BEST = library.set_isa_level(-1)
LEVELS = range(BEST + 1)
by_level = pytest.mark.parametrize("level", LEVELS, ids=[library.ISA[each] for each in LEVELS])


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    yield
    library.set_isa_level(-1)


def cases() -> list[tuple[Codec, Tensor]]:
    """Tensors of some thousand elements, one with NaN and infinity, for every kind of payload."""
    torch.manual_seed(0)
    maps, long = torch.randn(2, 8, 24, 24).relu(), torch.randn(70_000)
    odd = maps.clone()
    odd[0, 0, 0, :2] = torch.tensor([float("nan"), float("inf")])
    last = odd.to(memory_format=torch.channels_last)
    pooled = torch.nn.functional.max_pool2d(maps, 2, return_indices=True)[1]
    return [
        *((Group(bits), long) for bits in (1, 2, 3, 4, 8)),
        (Group(2, zero=True), odd),
        (Group((2, 3)), maps.bfloat16()),
        (Group(2, entropy=True), maps),
        (Dual(8, zero=True), odd),
        (Dual(8), last),
        (BitMask(), maps),
        (BitMask(), maps.half()),
        (Index(), torch.randint(0, 9, (7000,))),
        (Window((2, 2), (2, 2), (0, 0), (1, 1), (24, 24)), pooled),
        (Bounded(0.01), odd),
        (Bounded(0.01, predict="lorenzo"), maps),
        (Bounded(0.05, entropy=True), long),
        (Dithered(0.4), long),
        (Dithered(0.4).tabled(long), long.flip(0)),
        (FixedPoint(4), odd),
        (FixedPoint(5, skip_zeros=True), maps),
    ]


def bits_of(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8)


def results(codec: Codec, x: Tensor) -> list[Tensor]:
    payload = codec.encode(x, seed=7)
    masks = [codec.mask(payload)] if getattr(codec, "zero", False) else []
    return [payload.data, *(bits_of(found) for found in (codec.decode(payload), *masks))]


@by_level
def test_every_codec_gives_the_bytes_of_the_reference(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: dict[str, object] = {}
    monkeypatch.setattr(library, "_ENTRIES", called)
    assert library.set_isa_level(level) == level
    for codec, x in cases():
        monkeypatch.setattr("actzip.kernels.FORCED", "native")
        ours = results(codec, x)
        monkeypatch.setattr("actzip.kernels.FORCED", "reference")
        for one, other in zip(ours, results(codec, x), strict=True):
            assert torch.equal(one, other), codec
    sources = (Path(kernels.__file__).parent / "csrc").rglob("*.cpp")
    entries = {
        n for path in sources for n in re.findall(r"^ACTZIP_ENTRY\((\w+)\)", path.read_text(), re.M)
    }
    entries -= {"norm_channels", "norm_rows"}  # no codec's: test_norm.py runs them in each set
    assert called.keys() == entries, "each entry has run in this instruction set"


@by_level
def test_the_environment_chooses_the_instruction_set(level: int) -> None:
    assert asked(library.ISA[level]) == (library.ISA[level], "")


def test_a_set_that_there_is_not_is_named_and_the_best_is_used() -> None:
    used, said = asked("sse9")
    assert used == library.ISA[BEST]
    assert "ACTZIP_ISA=sse9 is not used: the instruction sets are portable, avx2, avx512" in said


def test_a_set_that_the_processor_lacks_is_named() -> None:
    class Old:
        """The library on a processor with AVX2 at most."""

        def actzip_set_isa_level(self, level: int) -> int:
            return min(level, 1)

    with pytest.warns(RuntimeWarning, match="ACTZIP_ISA=avx512 is not used: this processor has av"):
        library._choose(Old(), "avx512")  # type: ignore[arg-type]
    library._choose(Old(), "avx2")  # type: ignore[arg-type]


def asked(name: str) -> tuple[str, str]:
    """The set in use in a process with this environment, and what it says."""
    ask = "from actzip.kernels.native import library as l; print(l.ISA[l.isa_level()])"
    ran = subprocess.run(
        [sys.executable, "-c", ask],
        env={**os.environ, "ACTZIP_ISA": name},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip(), ran.stderr
