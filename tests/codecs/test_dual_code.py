"""Dual: what its docstring promises, and the numbers of the method it comes from."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from actzip.codecs import Dual, Group


def smooth_maps(size: int, slope: float = 1.5) -> Tensor:
    """Random fields whose amplitude falls as 1 / f^slope, like natural images; 64 maps."""
    generator = torch.Generator().manual_seed(size)
    spectrum = torch.fft.fft2(torch.randn(64, size, size, generator=generator))
    f = torch.fft.fftfreq(size).square()
    radius = (f.view(-1, 1) + f.view(1, -1)).sqrt()
    radius[0, 0] = 1 / size
    field = torch.fft.ifft2(spectrum / radius**slope).real
    return ((field - field.mean()) / field.std()).unsqueeze(0)


def noise(codec: Dual | Group, x: Tensor) -> float:
    """The error's power as a part of the variance."""
    y = codec.decode(codec.encode(x, seed=1))
    return float((x - y).square().mean() / x.var())


@pytest.mark.parametrize(
    ("size", "published", "plain", "aligned"),
    [(14, 0.41, 0.42, 0.34), (28, 0.47, 0.49, 0.30), (56, 0.27, 0.57, 0.27)],
)
def test_errors_on_smooth_maps_are_those_that_were_measured_for_the_method(
    size: int, published: float, plain: float, aligned: float
) -> None:
    x = smooth_maps(size)
    original = Dual(align="original", rounding="stochastic")
    group = Group(bits=2, group_size=size * size, rounding="stochastic")
    assert noise(original, x) == pytest.approx(published, rel=0.1)
    assert noise(group, x) == pytest.approx(plain, rel=0.1)
    assert noise(Dual(rounding="stochastic"), x) == pytest.approx(aligned, rel=0.1)
    assert noise(Dual(), x) == pytest.approx(aligned / 2, rel=0.15), "dither halves the variance"


@pytest.mark.parametrize("size", [14, 28, 56])
def test_a_code_for_zero_beats_a_mask_beside_the_code_at_equal_bytes(size: int) -> None:
    """After a ReLU: 3 bits with a code for zero against 2 bits and a mask of one."""
    x = smooth_maps(size).relu()
    beside = Dual(bits=2)
    y = beside.decode(beside.encode(x, seed=1)) * (x > 0)
    masked = float((x - y).square().mean() / x.var())
    assert noise(Dual(bits=3, zero=True), x) < 0.3 * masked


@pytest.mark.parametrize("rounding", ["dither", "stochastic", "nearest"])
@pytest.mark.parametrize("bits", [1, 2, 5])
def test_zeros_come_back_as_zeros_and_nothing_else_does(
    bits: int, rounding: str, backend: str
) -> None:
    codec = Dual(block=4, bits=bits, rounding=rounding, zero=True)
    x = torch.randn(2, 3, 9, 10).relu()
    x[0, 1] = x[0, 1] > 0  # equal values: nothing is left of them without their average
    x[1, 2] = 0.0
    x[1, 0, :4, :4] = 0.0
    payload = codec.encode(x, seed=5)
    assert torch.equal(codec.decode(payload) == 0, x == 0)
    assert torch.equal(codec.mask(payload), (x != 0).float())
    assert torch.equal(codec.decode(payload)[0, 1], x[0, 1])


def test_averages_are_those_of_the_elements_that_are_not_zero(backend: str) -> None:
    x = torch.zeros(1, 1, 4, 8)
    x[..., 1, 2], x[..., 3, 3], x[..., 0, 7] = 2.0, 4.0, 5.0
    data = Dual(block=4, zero=True).encode(x).data
    assert data[:4].view(torch.bfloat16).tolist() == [3.0, 5.0]
    assert Dual(block=4).encode(x).data[:2].view(torch.bfloat16).item() == 6 / 16


@pytest.mark.parametrize("align", ["ceil", "original"])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("channels", [3, 40, 64])
def test_values_do_not_depend_on_the_order_of_memory(
    align: str, zero: bool, channels: int, backend: str
) -> None:
    codec = Dual(align=align, zero=zero, rounding="nearest", bits=3)
    x = torch.randn(2, channels, 19, 12).relu()
    x[1, 2, 3, 4] = float("nan")
    last = x.contiguous(memory_format=torch.channels_last)
    expected = codec.decode(codec.encode(x))
    got = codec.decode(codec.encode(last))
    assert got.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(got.nan_to_num(9.0), expected.nan_to_num(9.0))
    tokens = Dual(align=align, zero=zero, rounding="nearest", bits=3, axes=(1, 2))
    got = tokens.decode(tokens.encode(x.permute(0, 2, 3, 1).contiguous()))
    assert torch.equal(got.nan_to_num(9.0), expected.permute(0, 2, 3, 1).nan_to_num(9.0))


def test_layouts_of_networks_are_coded_without_a_copy() -> None:
    maps, heads = torch.randn(2, 5, 6, 7), torch.randn(2, 9, 4, 8)
    cases = [
        (Dual(), maps),
        (Dual(), maps.contiguous(memory_format=torch.channels_last)),
        (Dual(axes=(1,)), torch.randn(2, 9, 8)),
        (Dual(axes=(1, 2)), maps),
        (Dual(axes=(2,)), heads),
        (Dual(axes=(2,)), heads.transpose(1, 2)),
    ]
    for codec, x in cases:
        view = codec._view(x)
        assert view is not None
        assert view.data_ptr() == x.data_ptr()
    assert Dual()._view(maps[:, ::2]) is None


def test_a_sequence_of_tokens_has_blocks_along_time(backend: str) -> None:
    x = torch.arange(4.0).repeat_interleave(8).view(1, 32, 1) * torch.tensor([64.0, -2.0])
    codec = Dual(bits=1, axes=(1,))
    assert torch.equal(codec.decode(codec.encode(x)), x)
    assert codec.encode(x).data[:4].view(torch.bfloat16).tolist() == [0.0, 0.0]
    assert codec.encode(x).data[4:8].view(torch.bfloat16).tolist() == [64.0, -2.0]


@pytest.mark.parametrize("size", [56, 28, 7])
def test_a_map_takes_the_bits_it_is_said_to(size: int) -> None:
    payload = Dual().encode(torch.randn(4, 32, size, size))
    blocks = (-(-size // 8)) ** 2
    expected = 4 * 32 * (2 * size * size + 16 * blocks + 32) / 8
    assert payload.data.numel() == pytest.approx(expected, abs=2)


def test_a_constant_of_bfloat16_is_exact(backend: str) -> None:
    x = torch.full((2, 3, 9, 10), 1.5)
    assert torch.equal(Dual().decode(Dual().encode(x)), x)


def test_block_averages_are_the_low_frequencies(backend: str) -> None:
    x = torch.arange(4.0).repeat_interleave(8).view(1, 1, 32) * 64
    assert torch.equal(Dual(bits=1).decode(Dual(bits=1).encode(x)), x)


def test_original_blocks_are_stretched_from_the_top_left(backend: str) -> None:
    """14 positions, block 8: one average, of the first 8, for all."""
    x = torch.cat([torch.full((8,), 2.0), torch.full((6,), 4.0)]).view(1, 1, 14)
    codec = Dual(bits=1, align="original", rounding="nearest")
    payload = codec.encode(x)
    assert payload.data[:2].view(torch.bfloat16).item() == 2.0
    assert torch.equal(codec.decode(payload), x)
    aligned = Dual(bits=1, rounding="nearest").encode(x)
    assert aligned.data[:4].view(torch.bfloat16).tolist() == [2.0, 4.0]


@pytest.mark.parametrize("shape", [(2, 3, 40), (2, 3, 9, 20), (2, 3, 4, 9, 10)])
@pytest.mark.parametrize("codec", [Dual(), Dual(zero=True), Dual(axes=(1,))], ids=repr)
def test_variance_is_predicted(shape: tuple[int, ...], codec: Dual) -> None:
    x = torch.randn(50 * shape[0], *shape[1:])
    x = x.relu() if codec.zero else x
    y = codec.decode(codec.encode(x, seed=2))
    assert float((x - y).double().square().mean()) == pytest.approx(codec.variance(x), rel=0.03)


def test_a_nan_costs_other_maps_nothing(backend: str) -> None:
    x = torch.randn(2, 3, 10, 10)
    x[1, 1, 4, 4] = float("nan")
    y = Dual().decode(Dual().encode(x))
    assert torch.equal(y[1, 1].nan_to_num(9.0), x[1, 1].nan_to_num(9.0))
    assert torch.isfinite(y[0]).all()


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(N, C, H, W\)"):
        Dual().encode(torch.randn(4, 5))
    with pytest.raises(ValueError, match="'ceil' or 'original'"):
        Dual(align="floor")
    with pytest.raises(ValueError, match="1 to 2147483647"):
        Dual(block=0)
    with pytest.raises(ValueError, match="1 to 8"):
        Dual(bits=9)
    with pytest.raises(ValueError, match="in a row"):
        Dual(axes=(1, 3))
    with pytest.raises(ValueError, match=r"axes \(3,\)"):
        Dual(axes=(3,)).encode(torch.randn(4, 5))
    with pytest.raises(ValueError, match="zero=True"):
        Dual().mask(Dual().encode(torch.randn(1, 1, 9)))
