"""Dithered: the bound, errors free of bias, bits near the conditional entropy, exact signs."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from actzip.codecs import Codec, Dithered, PayloadError, Rectified
from actzip.codecs.dithered import rate
from actzip.kernels.reference.dither import dither
from actzip.testing import conformance

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
CODECS = [
    Dithered(error=3.0),
    Dithered(error=1e30),
    Dithered(error=0.5, origin=0.25, coarser=3.0),
]
SIZES = (1, 63, 64, 65, 4095, 4097, 9000)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def conditional_entropy(x: Tensor, step: float, seed: int) -> float:
    """Bits of the codes given which of 32 ranges their dither is in."""
    v = dither(seed, 0, x.numel(), x.device)
    r = torch.round(x / step + v).long()
    r -= r.min()
    width = int(r.max()) + 1
    places = ((v + 0.5) * 32).long() * width + r
    counts = torch.bincount(places, minlength=32 * width).view(32, width).double()
    p = counts / counts.sum(1, keepdim=True)
    return float(-(counts * torch.where(p > 0, p, torch.ones_like(p)).log2()).sum() / x.numel())


@pytest.fixture
def small_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors are not left to Bounded."""
    monkeypatch.setattr("actzip.codecs.dithered._SMALL", 1)


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_dithered_keeps_every_promise_of_the_kit(codec: Dithered, small_too: None) -> None:
    conformance(codec)


def test_tensors_that_are_stored_otherwise_keep_every_promise_of_the_kit() -> None:
    conformance(Dithered(error=1e-3))
    conformance(Dithered(error=1e-3, origin=0.1))


@pytest.mark.parametrize("codec", [Dithered(0.5), Dithered(0.5, origin=0.0), Rectified(0.5)])
def test_codes_of_an_empty_tensor_are_damage(codec: Codec, backend: str) -> None:
    payload = codec.encode(normal(5000).relu())
    for shape in ((0,), (3, 0)):
        with pytest.raises(PayloadError):
            codec.decode(replace(payload, shape=shape, stride=(1,) * len(shape)))


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(width=32), min_size=1, max_size=300),
    exponent=st.integers(-30, 30),
    dtype=st.sampled_from(FLOATS),
    origin=st.none() | st.floats(-100, 100),
    coarser=st.sampled_from([0.5, 1.0, 3.0]),
)
def test_the_bound_and_the_sign_hold_for_any_values(
    values: list[float], exponent: int, dtype: torch.dtype, origin: float | None, coarser: float
) -> None:
    x = torch.tensor(values, dtype=torch.float64).to(dtype)
    codec = Dithered(2.0**exponent, origin=origin, coarser=1.0 if origin is None else coarser)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("actzip.codecs.dithered._SMALL", 1)
        y = codec.decode(codec.encode(x, seed=exponent & 7))
    finite = x.isfinite()
    assert torch.equal(x.isnan(), y.isnan())
    assert torch.equal(x[x.isinf()], y[x.isinf()])
    assert bool(((x - y).double().abs() <= codec.max_error(x))[finite].all())
    if origin is not None:
        there = torch.tensor(origin, dtype=torch.float64).to(dtype)
        assert torch.equal(x > there, y > there)


@pytest.mark.parametrize("step", [0.3, 2.0, 6.0, 30.0])
def test_the_error_is_uniform_and_free_of_bias(step: float) -> None:
    x = normal(1 << 16)
    error = (Dithered(step / 2).decode(Dithered(step / 2).encode(x, seed=3)) - x) / step
    assert float(error.abs().max()) <= 0.5
    n = x.numel()
    assert abs(float(error.mean())) < 5 * (1 / 12 / n) ** 0.5
    assert float(error.var()) == pytest.approx(1 / 12, rel=0.02)
    assert abs(float((error * x).mean())) < 5 * (1 / 12 / n) ** 0.5


@pytest.mark.parametrize("step", [30.0, 6.0, 2.0, 0.26])
@pytest.mark.parametrize("kind", ["normal", "relu"])
def test_bits_are_near_the_entropy_given_the_dither(step: float, kind: str) -> None:
    x = normal(1 << 18)
    if kind == "relu":
        x, step = x.relu(), step / 3
    bits = 8 * Dithered(step / 2).encode(x, seed=7).data.numel() / x.numel()
    assert 0.99 < bits / conditional_entropy(x, step, 7) < 1.06


def test_a_step_of_six_sigma_takes_less_than_half_a_bit() -> None:
    x = normal(1 << 18)
    assert 8 * Dithered(3.0).encode(x).nbytes / x.numel() < 0.45


def test_the_sign_costs_nothing_beside_the_codes() -> None:
    """A step of 2 sigma on one side and 6 on the other, with exact signs: about 1.3 bits."""
    x = normal(1 << 18)
    codec = Dithered(1.0, origin=0.0, coarser=3.0)
    payload = codec.encode(x, seed=1)
    assert torch.equal(codec.decode(payload) > 0, x > 0)
    assert 1.0 < 8 * payload.nbytes / x.numel() < 1.06 * codec.rate(x)[0]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_any_size_comes_back_within_the_bound(
    n: int, dtype: torch.dtype, small_too: None, backend: str
) -> None:
    x = normal(n).to(dtype)
    x[n // 2] = float("nan")
    y = Dithered(0.7).decode(Dithered(0.7).encode(x))
    assert bool((((x - y).double().abs() <= 0.7) | x.isnan()).all())
    assert torch.equal(x.isnan(), y.isnan())


@pytest.mark.parametrize("origin", [None, (0.0, 0.5, -1.0)])
def test_channels_have_their_own_steps_in_every_memory_order(
    origin: tuple[float, ...] | None, small_too: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = (0.1, 1.0, 5.0)
    codec = Dithered(errors, origin=origin)
    x = normal(4, 3, 10, 11)
    orders = [x, x.to(memory_format=torch.channels_last), x.permute(3, 1, 0, 2), x.transpose(2, 3)]
    copies = []
    contiguous = Tensor.contiguous

    def counted(self: Tensor) -> Tensor:
        copies.extend([self.shape] * (self.numel() == x.numel()))
        return contiguous(self)

    monkeypatch.setattr(Tensor, "contiguous", counted)
    for laid in orders:
        y = codec.decode(codec.encode(laid))
        assert y.stride() == laid.stride()
        worst = (y - laid).abs().amax((0, 2, 3))
        assert all(0.9 * e < float(w) <= e for e, w in zip(errors, worst, strict=True))
    assert not copies


def test_expanded_channels_keep_the_sign_about_each_origin(small_too: None) -> None:
    origins = (-0.5, 0.0, 0.5)
    x = normal(50, 1, 20).expand(50, 3, 20)
    codec = Dithered(1.0, origin=origins)
    y = codec.decode(codec.encode(x))
    for k, origin in enumerate(origins):
        assert torch.equal(x[:, k] > origin, y[:, k] > origin)
    one = Dithered((1.0, 0.5, 2.0), origin=0.2)
    y = one.decode(one.encode(x))
    assert torch.equal(x > 0.2, y > 0.2)
    assert 0.45 < float((x - y).abs().max()) <= 0.5


def test_the_last_dimension_may_hold_the_channels(small_too: None) -> None:
    codec = Dithered((0.1, 1.0, 5.0), channel_dim=-1)
    x = normal(40, 7, 3)
    worst = (codec.decode(codec.encode(x)) - x).abs().amax((0, 1))
    assert all(0.9 * e < float(w) <= e for e, w in zip((0.1, 1.0, 5.0), worst, strict=True))


def test_the_rate_is_what_is_stored() -> None:
    x = normal(1 << 18)
    for step, bits in zip((30.0, 6.0, 1.0), rate(x, (30.0, 6.0, 1.0)), strict=True):
        stored = 8 * Dithered(step / 2).encode(x).data.numel() / x.numel()
        assert 0.98 < stored / bits < 1.06


def test_the_rate_of_channels_and_sides_is_what_is_stored() -> None:
    x = normal(64, 4, 1024) * torch.tensor([1.0, 2.0, 4.0, 8.0])[:, None]
    codec = Dithered((1.0, 2.0, 4.0, 8.0), origin=(0.0, 1.0, -1.0, 2.0), coarser=2.0)
    stored = 8 * codec.encode(x).data.numel() / x.numel()
    assert stored == pytest.approx(codec.rate(x)[0], rel=0.05)
    half = 8 * replace(codec, error=(0.5, 1.0, 2.0, 4.0)).encode(x).data.numel() / x.numel()
    assert half == pytest.approx(codec.rate(x, (0.5,))[0], rel=0.05)


def test_the_rate_sees_all_places_of_a_map() -> None:
    """Values in the corner are a tenth of the others."""
    x = normal(64, 64, 8, 8)
    x[..., 0, 0] /= 10
    stored = 8 * Dithered(1.0).encode(x).data.numel() / x.numel()
    assert stored == pytest.approx(Dithered(1.0).rate(x)[0], rel=0.05)


def test_every_bit_flipped_gives_an_error_or_other_values(small_too: None, backend: str) -> None:
    x = normal(300)
    x[7] = float("inf")
    codec = Dithered(1.5)
    payload = codec.encode(x)
    refused = 0
    for place in range(0, 8 * payload.data.numel(), 3):
        data = payload.data.clone()
        data[place // 8] ^= 1 << place % 8
        try:
            assert codec.decode(replace(payload, data=data)).shape == x.shape
        except PayloadError:
            refused += 1
    assert refused > 0
    for length in range(payload.data.numel()):
        with pytest.raises(PayloadError):
            codec.decode(replace(payload, data=payload.data[:length]))


def test_payload_bytes_do_not_change(small_too: None, backend: str) -> None:
    i = torch.arange(9000)
    x = (i * 2654435761 % 1009 - 504).double() / 256
    found = {}
    for name, codec in (
        ("plain", Dithered(1.5)),
        ("signs", Dithered(1.5, origin=0.1, coarser=2.0)),
    ):
        data = codec.encode(x.float(), seed=5).data
        found[name] = (data.numel(), hashlib.sha256(bytes(data.tolist())).hexdigest()[:16])
    assert found == {"plain": (1209, "d63a472496b3265e"), "signs": (1689, "2a2f2afff9f12dfb")}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"error": 0.0}, "finite number above 0"),
        ({"error": ()}, "finite number above 0"),
        ({"error": float("nan")}, "finite number above 0"),
        ({"origin": float("inf")}, "origin"),
        ({"coarser": 2.0}, "give an origin"),
        ({"origin": 0.0, "coarser": 0.0}, "coarser"),
        ({"channel_dim": 2}, "channel_dim"),
        ({"error": (1.0, 2.0), "origin": (1.0, 2.0, 3.0)}, "2 channels and origins for 3"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Dithered(**options)  # type: ignore[arg-type]


def test_channels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="3 channels in dimension 1"):
        Dithered((1.0, 2.0, 3.0)).encode(torch.randn(4, 2))


def test_an_uneven_code_says_how_much_larger_its_errors_are_where() -> None:
    x = torch.randn(4, 3, 8, 8)
    origin = (0.1, -0.3, 0.0)
    codec = Dithered((0.1, 0.2, 0.3), origin=origin, coarser=3.0)
    uneven = codec.unevenness(x)
    assert uneven is not None
    ratio = codec.max_error(x) / codec.even().max_error(x)
    torch.testing.assert_close(uneven.double(), ratio.square().double())
    assert set(uneven.unique().tolist()) == {1.0, 9.0}
    for same in (codec.even(), Dithered(0.1)):
        assert same.unevenness(x) is None


@pytest.mark.parametrize("factor", [1e-3, 1.0, 40.0])
def test_the_rate_is_that_of_codes_counted_one_by_one(factor: float) -> None:
    """For each dither the entropy of the codes of all values, counted by rounding them."""
    x = torch.randn(8192, dtype=torch.float64)
    found = Dithered(0.5 * factor).rate(x)[0]
    total = 0.0
    many = 200
    for k in range(many):
        codes = torch.round(x / factor + (k + 0.5) / many - 0.5)
        p = codes.unique(return_counts=True)[1] / x.numel()
        total -= float((p * p.log2()).sum()) / many
    if factor == 1e-3:  # hardly any code occurs twice: what is added for that cannot be counted so
        assert 0.95 * total < found < 1.1 * total + 0.3
    else:
        assert 0.98 * total < found < 1.04 * total + 0.01


def test_the_rate_of_values_that_a_small_factor_would_make_infinite_is_finite() -> None:
    x = torch.tensor([1.7e308, -1.7e308, float("inf"), float("nan"), 1.0, 2.0], dtype=torch.float64)
    for codec in (Dithered(0.5), Dithered(0.5, origin=0.0)):
        assert all(0 <= bits < 1100 for bits in codec.rate(x, (2.0**-5, 1.0, 2.0**5)))
