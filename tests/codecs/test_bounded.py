"""Bounded: the strict bound, exact zeros, sizes, and payload bytes that never change."""

from __future__ import annotations

import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from actzip.codecs import PayloadError
from actzip.codecs.bounded import Bounded
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


def smooth_maps() -> Tensor:
    side = torch.linspace(0, 3, 64)
    map_ = torch.sin(side)[:, None] + torch.cos(2 * side)[None, :]
    return map_.expand(4, 8, 64, 64).contiguous()


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
    monkeypatch.setenv("ACTZIP_KERNELS", "reference")
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


def test_sizes_at_one_percent_of_the_largest_value() -> None:
    x = relu_data(1 << 20)
    error = float(x.max()) / 100
    assert x.nbytes / Bounded(error=error).encode(x).nbytes > 8.5
    assert x.nbytes / Bounded(error=error, rounding="nearest").encode(x).nbytes > 8.8
    assert x.nbytes / Bounded(error=error, entropy=True).encode(x).nbytes > 9.6


def test_smooth_maps_are_stored_as_differences() -> None:
    x = smooth_maps()
    plain = Bounded(error=0.02, rounding="nearest").encode(x)
    mapped = Bounded(error=0.02, rounding="nearest", predict="lorenzo").encode(x)
    coded = Bounded(error=0.02, rounding="nearest", predict="lorenzo", entropy=True).encode(x)
    assert x.nbytes / plain.nbytes > 10
    assert coded.nbytes < mapped.nbytes
    for payload in (plain, mapped, coded):
        assert float((payload.codec.decode(payload) - x).abs().max()) <= 0.02


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
    "entropy": (Bounded(error=0.01, entropy=True), torch.float64, "299938eacae54e87"),
}


@pytest.mark.parametrize("name", PINNED)
def test_payload_bytes_are_pinned(backend: str, name: str) -> None:
    codec, dtype, digest = PINNED[name]
    payload = codec.encode(formula(9000, dtype).view(3, 30, 100), seed=11)
    assert hashlib.sha256(bytes(payload.data.tolist())).hexdigest()[:16] == digest
