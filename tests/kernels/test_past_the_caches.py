"""Outputs too large for the caches are written past them: the values are the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from actzip.codecs import Bounded, Codec, Dual, Group
from actzip.kernels.native import library

BYTES = (32 << 20) + 40_000  #: a little more than beyond_caches() in csrc/common/core.hpp asks for
CODECS = [
    Group(bits=2),
    Group(bits=3, zero=True, rounding="stochastic"),
    Group(bits=8, group_size=96),
    Bounded(error=0.05),
    Bounded(error=0.05, rounding="nearest"),
    Bounded(error=0.05, entropy=True),
    Bounded(error=3.0, entropy=True),  # so few bits that spans form chains
    Group(bits=4, entropy=True),
    Dual(),
    Dual(zero=True),
]


@pytest.fixture
def level() -> Iterator[int]:
    """The instruction set that this processor has at most."""
    if not library.available():
        pytest.skip("needs the native library")
    found = library.isa_level()
    yield found
    library.set_isa_level(found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_streamed_values_are_those_of_plain_stores(
    codec: Codec, dtype: torch.dtype, level: int
) -> None:
    shape = (1, BYTES // dtype.itemsize // 56**2, 56, 56)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).relu().to(dtype)
    library.set_isa_level(0)  # streams nothing
    payload = codec.encode(x, seed=5)
    expected = codec.decode(payload)
    for other in range(1, level + 1):
        library.set_isa_level(other)
        assert torch.equal(codec.encode(x, seed=5).data, payload.data)
        assert torch.equal(codec.decode(payload), expected)
        moved = torch.empty(x.numel() + 1, dtype=dtype)[1:].view(shape)  # begins within a line
        codec.decode(payload, out=moved)
        assert torch.equal(moved, expected)


@pytest.mark.parametrize(
    "codec",
    [
        Bounded(error=0.05),
        Bounded(error=0.05, entropy=True),
        Bounded(error=0.05, rounding="nearest", entropy=True),
        Bounded(error=(0.05, 0.2, 0.01), entropy=True),
        Bounded(error=0.05, predict="lorenzo", entropy=True),
    ],
    ids=repr,
)
def test_blocks_that_are_stored_raw_lie_among_streamed_ones(codec: Codec, level: int) -> None:
    shape = (BYTES // 4 // 3 // 56**2 + 1, 3, 56, 56)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    for i, odd in enumerate((float("nan"), float("inf"), 1e30, -1e30)):
        x.view(-1)[i * 977 :: 50_021] = odd
    library.set_isa_level(0)  # streams nothing
    payload = codec.encode(x, seed=5)
    expected = codec.decode(payload).view(torch.int32)
    for other in range(1, level + 1):
        library.set_isa_level(other)
        assert torch.equal(codec.encode(x, seed=5).data, payload.data)
        assert torch.equal(codec.decode(payload).view(torch.int32), expected)
