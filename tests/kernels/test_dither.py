"""The hash behind every random choice: its statistics, and that indices are just numbers."""

from __future__ import annotations

import math

import pytest
import torch

from actzip.codecs import Group
from actzip.kernels.reference.dither import dither, stream_key

CPU = torch.device("cpu")
N = 1 << 20
SIGMA = 1 / math.sqrt(12 * N)  # of the mean of N uniform values


@pytest.mark.parametrize("seed", [0, 1, 7, 2**63, 2**64 - 1])
def test_values_are_uniform(seed: int) -> None:
    v = dither(seed, 0, N, CPU).double()
    assert abs(v.mean()) < 5 * SIGMA
    assert abs(12 * v.var() - 1) < 5 * math.sqrt(0.8 / N)
    assert float(v.abs().max()) < 0.5
    counts = torch.histc(v, 256, -0.5, 0.5)
    chi2 = float(((counts - N / 256) ** 2 / (N / 256)).sum())
    assert abs(chi2 - 255) < 5 * math.sqrt(2 * 255)


@pytest.mark.parametrize("lag", [1, 2, 3, 8, 15, 16, 17, 31, 32, 64, 256, 1024])
def test_neighbours_are_not_correlated(lag: int) -> None:
    v = dither(3, 0, N + lag, CPU).double()
    assert abs((v[lag:] * v[:-lag]).mean()) * 12 * math.sqrt(N) < 5
    cells = ((v + 0.5) * 16).long()
    counts = torch.bincount(cells[lag:] * 16 + cells[:-lag], minlength=256).double()
    chi2 = float(((counts - N / 256) ** 2 / (N / 256)).sum())
    assert abs(chi2 - 255) < 5 * math.sqrt(2 * 255)


@pytest.mark.parametrize("step", [1, 2, 2**16, 2**32, 0x9E3779B97F4A7C15])
def test_seeds_are_not_correlated(step: int) -> None:
    first, second = (dither(seed, 0, N, CPU).double() for seed in (100, 100 + step))
    for lag in (0, 1, 16, 32, 4096):
        product = (first[lag:] * second[: N - lag]).mean()
        assert abs(product) * 12 * math.sqrt(N) < 5, lag


def test_a_value_depends_on_its_own_index_only() -> None:
    whole = dither(9, 0, 1000, CPU)
    assert torch.equal(dither(9, 333, 100, CPU), whole[333:433])
    assert torch.equal(dither(9, 999, 1, CPU), whole[999:])


@pytest.mark.parametrize("seed", [0, 7, 2**63 + 11, 2**64 - 1])
def test_a_seed_on_the_device_gives_the_values_of_its_number(seed: int) -> None:
    as_int64 = seed - (1 << 64) if seed >> 63 else seed
    for start in (0, 3 << 33):  # with and without a high part in the key
        on_device = dither(torch.tensor(as_int64), start, 100, CPU)
        assert torch.equal(on_device, dither(seed, start, 100, CPU))


def test_words_beyond_32_bits_have_keys_of_their_own() -> None:
    far = 1 << 33  # element 2^33 is word 2^32
    assert stream_key(1, 0) != stream_key(1, 1)
    assert not torch.equal(dither(1, far, 64, CPU), dither(1, 0, 64, CPU))
    across = dither(1, far - 64, 128, CPU)
    assert torch.equal(across[64:], dither(1, far, 64, CPU))


def test_a_million_draws_of_one_value_have_its_mean() -> None:
    for value in (0.1234, 0.5, 0.987):
        x = torch.full((N,), value)
        x[::256], x[1::256] = 0.0, 1.0  # the range of every group
        for rounding, sigma in (("dither", SIGMA), ("stochastic", 0.5 / math.sqrt(N))):
            codec = Group(bits=1, rounding=rounding)
            error = (codec.decode(codec.encode(x, seed=1)) - x).double()
            assert abs(error.mean()) < 5 * sigma, (value, rounding)
