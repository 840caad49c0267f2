"""Group: what its docstring promises, in numbers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from actzip.codecs import Group, PayloadError


def relative_noise(codec: Group, x: Tensor) -> float:
    y = codec.decode(codec.encode(x, seed=3))
    return float((x - y).double().square().mean() / x.double().square().mean())


@pytest.mark.parametrize("bits", range(1, 9))
def test_codes_are_packed_without_waste(bits: int, backend: str) -> None:
    payload = Group(bits=bits).encode(torch.randn(256 * 100))
    assert payload.data.numel() == 256 * 100 * bits // 8 + 100 * 4


def test_noise_on_gaussian_data_is_the_known_one() -> None:
    x = torch.randn(1 << 20)
    assert relative_noise(Group(bits=2), x) == pytest.approx(0.299, rel=0.03)
    assert relative_noise(Group(bits=2, rounding="stochastic"), x) == pytest.approx(0.595, rel=0.03)


@pytest.mark.parametrize("rounding", ["dither", "stochastic"])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_variance_is_predicted_within_two_per_cent(bits: int, rounding: str) -> None:
    for x in (torch.randn(1 << 20), torch.randn(1 << 20).relu() + 0.3):
        codec = Group(bits=bits, rounding=rounding)
        y = codec.decode(codec.encode(x, seed=5))
        assert float((x - y).double().square().mean()) == pytest.approx(codec.variance(x), rel=0.02)


def test_variance_counts_non_zeros_only_when_zero_has_a_code() -> None:
    x = torch.randn(1 << 20).relu()
    codec = Group(bits=4, zero=True)
    y = codec.decode(codec.encode(x, seed=5))
    assert float((x - y).double().square().mean()) == pytest.approx(codec.variance(x), rel=0.02)


@pytest.mark.parametrize("rounding", ["dither", "stochastic"])
@pytest.mark.parametrize("shift", [0.0, 50.0])
def test_errors_have_no_mean_and_no_slope(rounding: str, shift: float) -> None:
    """Rounding the metadata after quantizing would show here at a mean of 50."""
    x = torch.randn(1 << 20) + shift
    codec = Group(bits=2, rounding=rounding)
    error = (codec.decode(codec.encode(x, seed=1)) - x).double()
    sigma = float(error.std()) / 1024
    assert abs(float(error.mean())) < 5 * sigma
    centred = (x - shift).double()
    assert abs(float((error * centred).mean())) < 5 * sigma


def test_dithered_errors_are_uniform_whatever_the_value() -> None:
    x = torch.rand(1 << 20)
    x[::256], x[1::256] = 0.0, 1.0
    codec = Group(bits=2)
    error = (codec.decode(codec.encode(x, seed=2)) - x).double()
    step = 0.333984375  # a third, rounded up to bfloat16
    assert float(error.abs().max()) <= step / 2 + 1e-6
    for low in (0.1, 0.4, 0.7):
        part = error[(x > low) & (x < low + 0.1)]
        assert float(part.square().mean()) == pytest.approx(step**2 / 12, rel=0.02)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_odd_value_costs_its_neighbours_nothing(value: float, backend: str) -> None:
    x = torch.randn(2000)
    x[700] = value
    codec = Group(bits=1)
    y = codec.decode(codec.encode(x, seed=1))
    group = slice(512, 768)
    assert torch.equal(y[group].nan_to_num(7.0, 8.0, 9.0), x[group].nan_to_num(7.0, 8.0, 9.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("bits", [1, 2, 5])
def test_zeros_and_only_zeros_come_back_as_zero(
    bits: int, dtype: torch.dtype, backend: str
) -> None:
    x = (torch.randn(5, 777) * 1e-3).relu().to(dtype)
    codec = Group(bits=bits, zero=True)
    payload = codec.encode(x, seed=4)
    assert torch.equal(codec.decode(payload) == 0, x == 0)
    mask = codec.mask(payload)
    assert mask.dtype == dtype
    assert torch.equal(mask, (x > 0).to(dtype))
    assert payload.data.numel() == Group(bits=bits).encode(x).data.numel()


def test_without_dither_decoded_relu_data_is_positive_where_it_was() -> None:
    x = torch.randn(5000).relu()
    for rounding in ("stochastic", "nearest"):
        codec = Group(bits=2, zero=True, rounding=rounding)
        assert codec.keeps_zeros
        assert torch.equal(codec.decode(codec.encode(x, seed=1)) > 0, x > 0)


def test_dither_may_cross_zero_and_says_so() -> None:
    x = torch.randn(5000).relu()
    codec = Group(bits=2, zero=True)
    assert not codec.keeps_zeros
    assert bool((codec.decode(codec.encode(x, seed=1)) < 0).any())


def test_mask_needs_a_code_for_zero() -> None:
    codec = Group()
    with pytest.raises(ValueError, match="zero=True"):
        codec.mask(codec.encode(torch.randn(10)))


def test_each_sample_gets_its_own_bits(backend: str) -> None:
    x = torch.randn(3, 1000)
    codec = Group(bits=(1, 8, 4))
    payload = codec.encode(x, seed=6)
    error = (codec.decode(payload, out=torch.empty_like(x)) - x).square().mean(1)
    assert float(error[0]) > 10 * float(error[2]) > 100 * float(error[1])
    codes = [bits * (1000 // 8) for bits in (1, 8, 4)]
    assert payload.data.numel() == 3 * 4 * 4 + sum(codes)


def test_channels_last_is_encoded_in_the_order_of_memory_by_sample_too() -> None:
    x = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    plain = Group(bits=4).encode(x, seed=1)
    assert torch.equal(plain.data, Group(bits=4).encode(x.permute(0, 2, 3, 1), seed=1).data)
    by_sample = Group(bits=(4, 2), group_size=64)
    payload = by_sample.encode(x, seed=1)
    assert torch.equal(payload.data, by_sample.encode(x.permute(0, 2, 3, 1), seed=1).data)
    error = (by_sample.decode(payload) - x).abs().amax((1, 2, 3))
    assert float(error[0]) * 2 < float(error[1])
    assert (by_sample.decode(payload) - x).abs().le(by_sample.max_error(x)).all()


def test_samples_that_lie_across_memory_are_brought_into_order() -> None:
    x = torch.randn(64, 2, 8).permute(1, 0, 2)
    codec = Group(bits=(8, 2), group_size=64)
    back = codec.decode(codec.encode(x, seed=1))
    assert back.stride() == x.stride()
    assert (back - x).abs().le(codec.max_error(x)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 0}, "1 to 8"),
        ({"bits": 9}, "1 to 8"),
        ({"bits": 2.5}, "1 to 8"),
        ({"bits": (2, 0)}, "1 to 8"),
        ({"group_size": 0}, "at least 1"),
        ({"rounding": "up"}, "nearest, stochastic, dither"),
    ],
)
def test_wrong_options_are_refused_when_given(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Group(**options)  # type: ignore[arg-type]


def test_wrong_tensors_are_refused_with_advice() -> None:
    with pytest.raises(TypeError, match=r"Index\(\)"):
        Group().encode(torch.arange(4))
    with pytest.raises(ValueError, match="bits for 2 samples"):
        Group(bits=(1, 2)).encode(torch.randn(3, 4))


def test_a_payload_of_another_codec_is_refused() -> None:
    payload = Group(bits=2).encode(torch.randn(10))
    with pytest.raises(PayloadError, match="made by Group"):
        Group(bits=3).decode(payload)


def test_a_list_of_bits_is_a_tuple() -> None:
    assert Group(bits=[1, 2]) == Group(bits=(1, 2))  # type: ignore[arg-type]
    assert math.isclose(Group(bits=[8]).variance(torch.zeros(1, 9)), 0.0)  # type: ignore[arg-type]
