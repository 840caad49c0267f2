"""Every registered codec goes through the kit, in several configurations, on both backends."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from actzip.codecs import (
    BitMask,
    Cast,
    Codec,
    Dual,
    Group,
    Index,
    Keep,
    Rectified,
    registered,
)
from actzip.testing import Promise, conformance

BY_SAMPLE = tuple(1 + i % 8 for i in range(3))


def relu_mask(codec: Codec, x: Tensor, y: Tensor) -> None:
    assert torch.equal(y, x if x.dtype == torch.bool else (~(x <= 0)).to(x.dtype))


def of_a_relu(codec: Codec, x: Tensor, y: Tensor) -> None:
    """A negative element, which no ReLU gives, may come back as zero."""
    nan, inf = x.isnan(), x == torch.inf
    assert torch.equal(y.isnan(), nan), "NaN moved"
    assert torch.equal(y == torch.inf, inf), "an infinity changed"
    assert torch.equal((y != 0)[x >= 0], (x > 0)[x >= 0]), "the mask changed"
    bound = codec.max_error(x)
    assert bound is not None
    error = (x.double() - y.double()).abs()
    assert bool((error <= bound.double())[x.isfinite()].all()), "above the bound"


def zero_or_two(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    bits = torch.rand(shape, generator=generator) > 0.5
    return bits if dtype == torch.bool else (2.5 * bits).to(dtype)


def equal(codec: Codec, x: Tensor, y: Tensor) -> None:
    assert torch.equal(x, y)


PROMISES: dict[type[Codec], Promise] = {
    BitMask: relu_mask,
    Rectified: of_a_relu,
}

CODECS: list[Codec] = [
    Keep(),
    Index(),
    BitMask(),
    Cast(torch.bfloat16),
    Cast(torch.float16),
    *(Group(bits=bits) for bits in range(1, 9)),
    *(Group(bits=bits, zero=True) for bits in (1, 2, 5, 8)),
    Group(bits=2, rounding="stochastic"),
    Group(bits=3, rounding="nearest", zero=True),
    Group(bits=4, group_size=1),
    Group(bits=2, group_size=32),
    Group(bits=2, group_size=100, zero=True),
    Group(bits=BY_SAMPLE, group_size=16),
    Group(bits=BY_SAMPLE, group_size=32, zero=True, rounding="stochastic"),
    Dual(),
    Dual(block=2, bits=5, rounding="stochastic"),
    Dual(block=3, bits=1, align="original", rounding="nearest"),
    *(Dual(bits=bits, zero=True) for bits in (1, 2, 8)),
    Dual(block=4, bits=3, rounding="stochastic", zero=True, axes=(1,)),
    Dual(block=2, bits=4, align="original", axes=(0, 1)),
    *(Rectified(error) for error in (1e-3, 0.3, 5.0, 1e30)),
]


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_codec_keeps_every_promise(codec: Codec) -> None:
    conformance(codec, promise=PROMISES.get(type(codec)))


@pytest.mark.parametrize("error", [1e-3, 0.3, 5.0, 1e30])
def test_rectified_keeps_every_promise_where_it_is_dithered(
    error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kit's tensors are small, and those are left to Bounded."""
    monkeypatch.setattr("actzip.codecs.dithered._SMALL", 1)
    conformance(Rectified(error), promise=of_a_relu)


# The twin is slow, and tests/kernels compare it with the library byte by byte: a few will do.
@pytest.mark.parametrize(
    "codec",
    [Group(), Group(zero=True), Group(bits=BY_SAMPLE), Dual(), Dual(zero=True, axes=(1,))],
    ids=repr,
)
def test_codec_keeps_every_promise_on_the_reference(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actzip.kernels.FORCED", "reference")
    conformance(codec)


def test_dropout_noise_comes_back_exactly(backend: str) -> None:
    conformance(BitMask(on=2.5), promise=equal, values=zero_or_two)


def test_every_registered_codec_is_in_the_kit() -> None:
    # in files of their own
    elsewhere = {"Bounded", "Centred", "Dithered", "FixedPoint", "Split", "Window"}
    tried = {type(codec).__name__ for codec in CODECS}
    assert set(registered()) - elsewhere == tried
