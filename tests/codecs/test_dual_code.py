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
    y = codec.decode(codec.encode(x, seed=1))
    return float((x - y).square().mean().sqrt() / x.std())


@pytest.mark.parametrize("size", [14, 28, 56])
def test_aligned_blocks_beat_the_original_and_the_plain_code_on_smooth_maps(size: int) -> None:
    x = smooth_maps(size)
    plain = Group(bits=2, group_size=size * size, rounding="stochastic")
    original = Dual(align="original", rounding="stochastic")
    aligned = Dual(rounding="stochastic")
    assert noise(aligned, x) < 0.92 * noise(plain, x)
    assert noise(aligned, x) <= 1.001 * noise(original, x)


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
def test_variance_is_predicted(shape: tuple[int, ...]) -> None:
    x = torch.randn(50 * shape[0], *shape[1:])
    y = Dual().decode(Dual().encode(x, seed=2))
    assert float((x - y).double().square().mean()) == pytest.approx(Dual().variance(x), rel=0.03)


def test_a_nan_costs_other_maps_nothing(backend: str) -> None:
    x = torch.randn(2, 3, 10, 10)
    x[1, 1, 4, 4] = float("nan")
    y = Dual().decode(Dual().encode(x))
    assert torch.equal(y[1, 1].nan_to_num(9.0), x[1, 1].nan_to_num(9.0))
    assert torch.isfinite(y[0]).all()


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(N, C, H, W\)"):
        Dual().encode(torch.randn(4, 5))
    with pytest.raises(ValueError, match="ceil, original"):
        Dual(align="floor")
    with pytest.raises(ValueError, match="at least 1"):
        Dual(block=0)
    with pytest.raises(ValueError, match="1 to 8"):
        Dual(bits=9)
