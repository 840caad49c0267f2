"""Curves of bits against step: measured, falling, and true of the whole tensor."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from actzip.codecs import Bounded
from actzip.control.rate_curves import GRID, MEASURED, Curve, curve_of, measure, sample, spread


def test_a_curve_goes_through_what_was_measured_and_falls() -> None:
    known = {u: math.log2(1 + 2.0**-u) for u in MEASURED}
    found = measure(known.__getitem__)
    for u, bits in known.items():
        assert found[int(np.flatnonzero(u == GRID)[0])] == np.float64(bits)
    assert (np.diff(found) <= 0).all()
    exact = np.log2(1 + 2.0**-GRID)
    near = GRID >= -6
    assert np.abs(found - exact)[near].max() < 0.02
    assert found[0] == known[-6.0] + (-6 - GRID[0]), "each factor of 2 takes a bit"


def test_the_curve_of_a_sample_is_that_of_the_tensor() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(32, 16, 32, 32, generator=rng).relu()
    some = sample(x).contiguous().view(-1)
    size = spread(some)
    assert abs(size / spread(x) - 1) < 0.02
    for u in (-3.0, 0.0, 1.0):
        code = Bounded(size * 2**u / 2, entropy=True)
        whole = code.encode(x).data.numel() / x.numel()
        part = (code.encode(some).data.numel() - 160) / some.numel()
        assert abs(part / whole - 1) < 0.03, u


def test_samples_are_spread_over_the_tensor_and_small() -> None:
    for shape in [(64, 8, 64, 64), (4, 4096, 512), (1 << 20,), (8, 3), (2, 3, 4)]:
        x = torch.arange(math.prod(shape), dtype=torch.float64).view(shape)
        some = sample(x, 1 << 12)
        assert some.numel() <= 1 << 12
        assert some.numel() == x.numel() or some.numel() >= 1 << 10
        assert abs(float(some.mean() / max(1.0, float(x.mean()))) - 1) < 0.25


def test_zeros_and_infinities_have_no_size() -> None:
    assert spread(torch.zeros(8)) == 0
    assert spread(torch.tensor([1.0, math.inf, 2.0])) == 0
    assert spread(torch.tensor([0.0, 1.0, 3.0])) == 1


def test_bytes_between_the_points_of_the_grid() -> None:
    bits = [float(b) for b in np.log2(1 + 2.0**-GRID)]
    curve = Curve(elements=800, size=2.0, bits=bits, coarsest=3.0)
    assert curve.bytes_at(2.0) == 100.0
    assert curve.bytes_at(4.0) < curve.bytes_at(2.1) < 100.0


def test_a_curve_by_channel_knows_all_channels_of_wide_maps() -> None:
    x = torch.randn(8, 64, 1, 112) * torch.linspace(0.5, 2.0, 64).view(-1, 1, 1)
    curve = curve_of(x, 5.0, 1, own_steps=True)
    assert len(curve.direction) == 64
    assert curve.direction[-1] > 3 * curve.direction[0]


def test_channels_apart_are_coded_about_their_means() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(512, 64, generator=rng)
    means = 3 * torch.randn(64, generator=rng)
    alone, apart = curve_of(x, 0.0, -1), curve_of(x + means, 0.0, -1)
    assert not alone.centre
    assert np.abs(np.array(apart.centre) - means.numpy()).max() < 0.2
    assert apart.size == pytest.approx(alone.size, rel=0.01)
    assert apart.bytes_at(1.0) == pytest.approx(alone.bytes_at(1.0), rel=0.02)
    # the coarsest step is in parts of the values, which are farther from zero
    assert apart.coarsest == pytest.approx(math.log2(spread(x + means) / apart.size), abs=0.05)
    relu = curve_of((x + means).relu(), 0.0, -1, relu=True)
    assert not relu.centre, "zeros stay zeros"


def test_channels_of_zeros_and_ones_have_a_curve() -> None:
    chance = torch.linspace(0.05, 0.95, 8)
    x = torch.bernoulli(chance.expand(2048, 8), generator=torch.Generator().manual_seed(0))
    curve = curve_of(x, 1.0, -1)
    assert curve.centre
    assert curve.size > 0
    assert curve.coarsest == 1.0
