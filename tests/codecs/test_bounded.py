"""Bounded: the strict bound, exact zeros, sizes, and payload bytes that never change."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from actzip.codecs import PayloadError
from actzip.codecs.bounded import Bounded
from actzip.kernels.entropy_table import entropy_bits
from actzip.kernels.reference.bounded_symbols import quantize
from actzip.testing import conformance

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

CODECS = [
    Bounded(),
    Bounded(error=1e-3, rounding="nearest"),
    Bounded(error=0.1, predict="lorenzo"),
    Bounded(error=1e-2, entropy=True),
    Bounded(error=1e-2, entropy=True, predict="lorenzo", rounding="nearest"),
    Bounded(error=1e-30),
    Bounded(error=1e30),
]


def relu_data(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed)).relu()


def waves() -> Tensor:
    side = torch.linspace(0, 3, 64)
    map_ = torch.sin(side)[:, None] + torch.cos(2 * side)[None, :]
    return map_.expand(4, 8, 64, 64).contiguous()


def fields(size: int, slope: float) -> Tensor:
    """Random maps whose amplitude falls as 1 / f^slope, like natural images, after a ReLU."""
    generator = torch.Generator().manual_seed(size)
    noise = torch.fft.rfft2(torch.randn(4, 16, size, size, generator=generator))
    radius = torch.fft.fftfreq(size)[:, None].hypot(torch.fft.rfftfreq(size))
    radius[0, 0] = 1 / size
    return torch.fft.irfft2(noise / radius**slope, s=(size, size)).relu()


def ratio(codec: Bounded, x: Tensor) -> float:
    return x.nbytes / codec.encode(x).nbytes


def formula(n: int, dtype: torch.dtype) -> Tensor:
    """Values that no random generator and no math library takes part in."""
    i = torch.arange(n)
    return ((i * 2654435761 % 1009 - 504).clamp(min=-100).double() / 256).to(dtype)


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_bounded_keeps_every_promise_of_the_kit(codec: Bounded) -> None:
    conformance(codec)


def test_bounded_keeps_every_promise_of_the_kit_on_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("actzip.kernels.FORCED", "reference")
    # what it computes with is one of two types; every flipped bit takes it milliseconds
    monkeypatch.setattr("actzip.testing.inputs.DTYPES", (torch.bfloat16, torch.float64))
    conformance(Bounded())


@settings(max_examples=150, deadline=None)
@given(
    values=st.lists(st.floats(width=32), min_size=1, max_size=300),
    exponent=st.integers(-110, 100),
    dtype=st.sampled_from(FLOATS),
    rounding=st.sampled_from(["dither", "nearest"]),
    entropy=st.booleans(),
)
def test_no_finite_element_is_further_off_than_the_error(
    values: list[float], exponent: int, dtype: torch.dtype, rounding: str, entropy: bool
) -> None:
    x = torch.tensor(values, dtype=torch.float64).to(dtype)
    codec = Bounded(error=2.0**exponent, rounding=rounding, entropy=entropy)
    y = codec.decode(codec.encode(x, seed=exponent & 7))
    finite = x.isfinite()
    assert bool(((x.double() - y.double()).abs() <= 2.0**exponent)[finite].all())
    assert torch.equal(x[~finite].nan_to_num(7.0), y[~finite].nan_to_num(7.0))
    assert bool((y[x == 0] == 0).all())
    if rounding == "dither":
        assert torch.equal(x == 0, y == 0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("entropy", [False, True])
def test_relu_mask_is_read_from_what_is_not_zero(dtype: torch.dtype, entropy: bool) -> None:
    x = relu_data(20_000).to(dtype)
    y = (codec := Bounded(error=0.05, entropy=entropy)).decode(codec.encode(x, seed=3))
    assert torch.equal(y != 0, x > 0)


def test_dithered_error_is_uniform_and_unbiased() -> None:
    x = relu_data(1 << 20) + 0.5
    codec = Bounded(error=0.05)
    error = (x - codec.decode(codec.encode(x, seed=1))).double()
    deviation = float((error**2).mean().sqrt())
    assert abs(float(error.mean())) < 5 * deviation / 1024
    assert float((error**2).mean()) == pytest.approx(0.05**2 / 3, rel=0.01)
    assert codec.variance(x) == pytest.approx(0.05**2 / 3)


def test_sizes_of_relu_maps_at_one_percent_of_the_largest_value() -> None:
    x = fields(56, 1.5)
    error = float(x.max()) / 100
    assert ratio(Bounded(error=error), x) > 9.1
    assert ratio(Bounded(error=error, rounding="nearest"), x) > 9.5
    assert ratio(Bounded(error=error, entropy=True), x) > 11
    assert ratio(Bounded(error=error, entropy=True, rounding="nearest"), x) > 11.5


@pytest.mark.parametrize("rounding", ["dither", "nearest"])
def test_sizes_of_independent_relu_values_at_one_percent_of_the_largest(rounding: str) -> None:
    """Nothing to learn from neighbours: what is coded cannot be smaller than its entropy.

    That is 9.84 times smaller than float32 with dither and 10.21 times with nearest, for a million
    values of which the largest is 4.9 times the deviation. (Dither tells zeros from values below
    the error, so that the mask survives: 0.12 bits.) Packed blocks pay 1 bit for the bitmap, 5 or 6
    bits for half of the codes and 0.14 bits for headers and table: 8.55 and 8.81.
    """
    x = relu_data(1 << 20)
    error = float(x.max()) / 100
    codec = Bounded(error=error, rounding=rounding)
    symbols, _, _ = quantize(x, codec._layout(x), 0)
    ideal = 4 * x.numel() / (entropy_bits(torch.bincount(symbols.view(-1)).tolist()) / 8)
    assert ideal == pytest.approx(9.84 if rounding == "dither" else 10.21, abs=0.03)
    assert ratio(codec, x) > (8.5 if rounding == "dither" else 8.8)
    assert ratio(replace(codec, entropy=True), x) > 0.99 * ideal


def test_smooth_maps_are_stored_as_differences() -> None:
    x = fields(112, 2.0)
    error = float(x.max()) / 100
    assert ratio(Bounded(error=error), x) > 11.7
    assert ratio(Bounded(error=error, rounding="nearest"), x) > 12
    assert ratio(Bounded(error=error, entropy=True), x) > 18
    assert ratio(Bounded(error=error, entropy=True, predict="lorenzo"), x) > 20


def test_waves_have_differences_in_two_dimensions() -> None:
    """Along a row neighbours differ by up to 2.4 steps, 3 bits: no more than 10.2 in one."""
    x = waves()
    plain = Bounded(error=0.02, rounding="nearest")
    assert ratio(plain, x) > 10
    assert ratio(replace(plain, entropy=True), x) > 12
    assert ratio(replace(plain, predict="lorenzo"), x) > 14
    assert ratio(replace(plain, predict="lorenzo", entropy=True), x) > 24
    for codec in (plain, replace(plain, predict="lorenzo", entropy=True)):
        assert float((codec.decode(codec.encode(x)) - x).abs().max()) <= 0.02


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("predict", [None, "lorenzo"])
def test_both_backends_give_the_same_chains(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, predict: str | None
) -> None:
    x = formula(3 * 65536 + 70, dtype).clamp(min=1)
    x[70_000] = torch.nan
    codec = Bounded(error=0.4, predict=predict, entropy=True)
    found = []
    for backend in ("native", "reference"):
        monkeypatch.setattr("actzip.kernels.FORCED", backend)
        found.append(codec.encode(x, seed=3))
    assert int(found[0].data[0]) == 1
    assert int(found[0].data[2]) > 1, "spans are in chains"
    assert torch.equal(found[0].data, found[1].data)
    decoded = codec.decode(found[0])
    monkeypatch.setattr("actzip.kernels.FORCED", "native")
    assert torch.equal(decoded.nan_to_num(), codec.decode(found[0]).nan_to_num())


def test_prediction_is_only_used_where_it_helps() -> None:
    x = relu_data(1 << 18)
    alone = Bounded(error=0.05, entropy=True)
    assert replace(alone, predict="lorenzo").encode(x).nbytes == alone.encode(x).nbytes


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_cannot_be_coded_costs_at_most_one_percent(dtype: torch.dtype) -> None:
    x = torch.randn(50_000).to(dtype)
    for codec in (Bounded(error=1e-20), Bounded(error=1e-20, entropy=True)):
        payload = codec.encode(x)
        assert payload.nbytes <= 1.01 * x.nbytes + 64
        assert torch.equal(codec.decode(payload), x)


def test_nan_and_infinity_leave_their_neighbours_within_the_bound() -> None:
    x = relu_data(4096)
    x[100], x[2000], x[2001] = float("nan"), float("inf"), -float("inf")
    for entropy in (False, True):
        codec = Bounded(error=0.05, entropy=entropy)
        y = codec.decode(codec.encode(x))
        finite = x.isfinite()
        assert float((x - y)[finite].abs().max()) <= 0.05
        assert bool(y[100].isnan())
        assert y[2000:2002].tolist() == [float("inf"), -float("inf")]


@pytest.mark.parametrize("dim", [1, -1])
@pytest.mark.parametrize("entropy", [False, True])
def test_each_channel_has_its_own_error(dim: int, entropy: bool) -> None:
    errors = (0.001, 0.1, 0.5)
    x = torch.randn((5, 3, 41) if dim == 1 else (41, 5, 3))
    codec = Bounded(error=errors, channel_dim=dim, entropy=entropy)
    off = (codec.decode(codec.encode(x)) - x).abs().movedim(dim, 0).flatten(1).amax(1)
    assert bool((off <= torch.tensor(errors)).all())
    assert bool((off > torch.tensor(errors) * 0.8).all())


def test_channels_last_needs_no_copy_and_comes_back_as_it_was() -> None:
    x = torch.randn(2, 16, 9, 9).contiguous(memory_format=torch.channels_last)
    for codec in (Bounded(), Bounded(error=(0.01,) * 16), Bounded(predict="lorenzo")):
        y = codec.decode(codec.encode(x))
        assert y.stride() == x.stride()
        assert float((x - y).abs().max()) <= 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"error": 0.0}, "above 0"),
        ({"error": float("nan")}, "above 0"),
        ({"error": ()}, "above 0"),
        ({"error": (0.1, -1.0)}, "above 0"),
        ({"rounding": "up"}, "'dither' or 'nearest'"),
        ({"predict": "spline"}, "None or 'lorenzo'"),
        ({"channel_dim": 0}, "1 or -1"),
    ],
)
def test_wrong_options_are_refused_with_what_is_allowed(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Bounded(**options)  # type: ignore[arg-type]


def test_wrong_number_of_channels_is_refused() -> None:
    with pytest.raises(ValueError, match="2 channels in dimension 1"):
        Bounded(error=(0.1, 0.2)).encode(torch.zeros(2, 3))


@pytest.mark.parametrize("entropy", [False, True])
def test_payload_cut_short_is_an_error(backend: str, entropy: bool) -> None:
    codec = Bounded(error=0.05, entropy=entropy)
    payload = codec.encode(relu_data(20_000))
    assert not entropy or int(payload.data[0]) == 1
    for size in (0, 1, 40, payload.data.numel() // 2, payload.data.numel() - 1):
        cut = type(payload)(
            codec, payload.shape, payload.stride, payload.dtype, payload.seed, payload.data[:size]
        )
        with pytest.raises(PayloadError):
            codec.decode(cut)


PINNED = {
    "plain": (Bounded(error=0.01), torch.float32, "835f3391c1be1a8e"),
    "nearest": (Bounded(error=0.05, rounding="nearest"), torch.bfloat16, "51a5d7cd8ab7ba34"),
    "half": (Bounded(error=0.02, predict="lorenzo"), torch.float16, "396506d52a38318f"),
    "entropy": (Bounded(error=0.01, entropy=True), torch.float64, "46e8f31f7cdd94dd"),
    "zeros": (Bounded(error=0.5, entropy=True), torch.float32, "976ebeef1efc6ccf"),
    "differences": (
        Bounded(error=0.01, entropy=True, predict="lorenzo"),
        torch.float32,
        "a514b977245843a7",
    ),
}


@pytest.mark.parametrize("name", PINNED)
def test_payload_bytes_are_pinned(backend: str, name: str) -> None:
    codec, dtype, digest = PINNED[name]
    x = formula(9000, dtype).view(3, 30, 100)
    if name == "differences":
        x = x[:, :, :1] + torch.arange(100).to(dtype) / 64
    elif name == "zeros":
        x = x.repeat(8, 1, 1).clamp(min=1.5) - 1.5
    payload = codec.encode(x, seed=11)
    assert hashlib.sha256(bytes(payload.data.tolist())).hexdigest()[:16] == digest
