"""Centred: channels about their own centres take the bits of their spread, not of their means."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor

from actzip.codecs import Centred, Dithered
from actzip.testing import conformance


@pytest.fixture
def small_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors are not left to Bounded."""
    monkeypatch.setattr("actzip.codecs.dithered._SMALL", 1)


def apart(channels: int = 64) -> tuple[Tensor, Tensor]:
    """Rows of channels whose means are spread three times as far as their values."""
    generator = torch.Generator().manual_seed(0)
    means = 3 * torch.randn(channels, generator=generator)
    return means + torch.randn(4096, channels, generator=generator), means


def of_two(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """The kit's shapes with two channels in the place of their last dimension."""
    if not dtype.is_floating_point:
        return torch.zeros(shape, dtype=dtype)
    return torch.randn((*shape[:-1], 2), generator=generator).to(dtype)


@pytest.mark.parametrize("error", [1e-3, 0.5, 1e30, (0.1, 3.0)])
def test_it_keeps_every_promise_of_the_kit(
    error: float | tuple[float, ...], small_too: None
) -> None:
    conformance(Centred((0.7, -40.0), error, -1), values=of_two)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_the_largest_values_do_not_overflow(dtype: torch.dtype, small_too: None) -> None:
    largest = torch.finfo(dtype).max
    x = torch.tensor([largest, -largest, 1.0, float("inf"), float("nan"), 2.0]).to(dtype)
    x = torch.stack([x, x], 1)
    codec = Centred((1e30, -1e30), 0.5)
    y = codec.decode(codec.encode(x))
    finite = x.isfinite()
    assert torch.equal(finite, y.isfinite())
    assert torch.equal(x[x.isinf()], y[x.isinf()])
    assert bool(((x - y).double().abs() <= codec.max_error(x))[finite].all())


def test_means_far_apart_cost_no_bits() -> None:
    x, means = apart()
    alone = Dithered(0.5).encode(x - means).data.numel()
    centred = Centred(tuple(means.tolist()), 0.5).encode(x).data.numel()
    assert centred == pytest.approx(alone, rel=0.001)
    assert centred < 0.65 * Dithered(0.5).encode(x).data.numel()


def test_the_error_is_uniform_and_free_of_bias() -> None:
    x, means = apart()
    codec = Centred(tuple(means.tolist()), 1.0)
    error = (codec.decode(codec.encode(x, seed=3)) - x) / 2
    assert float(error.abs().max()) <= 0.5 + 1e-6
    assert abs(float(error.mean())) < 5 * (1 / 12 / x.numel()) ** 0.5
    assert float(error.var()) == pytest.approx(1 / 12, rel=0.02)
    assert abs(float((error * (x - means)).mean())) < 5 * (1 / 12 / x.numel()) ** 0.5


def test_the_rate_is_what_is_stored() -> None:
    x, means = apart()
    for error in (0.2, 2.0, tuple([0.5] * 32 + [2.0] * 32)):
        codec = Centred(tuple(means.tolist()), error)
        stored = 8 * codec.encode(x).data.numel() / x.numel()
        assert stored == pytest.approx(codec.rate(x)[0], rel=0.05)


@pytest.mark.parametrize("error", [0.5, tuple(0.1 * (k + 1) for k in range(64))])
def test_every_memory_order_and_expanded_channels_come_back(
    error: float | tuple[float, ...],
) -> None:
    x, means = apart()
    codec = Centred(tuple(means.tolist()), error)
    maps = x.view(64, 64, 64).permute(0, 2, 1)
    each = torch.randn(4096, 1, generator=torch.Generator().manual_seed(1)).expand(4096, 64)
    bound = torch.tensor(error if isinstance(error, tuple) else [error] * 64) + 1e-5
    for laid, wide in ((x, bound), (maps, bound[:, None]), (maps.contiguous(), bound[:, None])):
        y = codec.decode(codec.encode(laid))
        assert y.stride() == laid.stride()
        assert bool(((y - laid).abs() <= wide).all())
    y = codec.decode(codec.encode(each))
    assert bool(((y - each).abs() <= bound.min() + 1e-5).all())


def test_its_repr_and_its_pickle_give_it_back() -> None:
    codec = Centred((1.0, -2.0), 0.5, -1)
    x = torch.randn(9, 2)
    codec.decode(codec.encode(x))
    assert eval(repr(codec), {"Centred": Centred}) == codec
    again = pickle.loads(pickle.dumps(codec))
    assert again == codec
    assert torch.equal(again.decode(again.encode(x)), codec.decode(codec.encode(x)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"centre": ()}, "a finite number per channel"),
        ({"centre": (float("nan"),)}, "a finite number per channel"),
        ({"centre": (1.0, 2.0), "error": (1.0,)}, "1 channels and centres of 2"),
        ({"centre": (1.0,), "error": 0.0}, "above 0"),
        ({"centre": (1.0,), "channel_dim": 2}, "1 or -1"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Centred(**options)  # type: ignore[arg-type]


def test_channels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="centres of 2 channels"):
        Centred((1.0, 2.0)).encode(torch.zeros(4, 3))
