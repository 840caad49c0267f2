"""The entropy stage: exact, near the entropy of the codes, and never longer than plain packing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from actzip.codecs.bounded import Bounded
from actzip.codecs.entropy import entropy_decode, entropy_encode
from actzip.kernels.entropy_table import SCALE, normalise, store
from actzip.kernels.errors import DamagedError

N = 1 << 18


def entropy_bytes(codes: Tensor) -> float:
    """Bytes of the codes' empirical entropy."""
    p = torch.bincount(codes.long()).double() / codes.numel()
    p = p[p > 0]
    return float(-(p * p.log2()).sum()) * codes.numel() / 8


def activations() -> Tensor:
    """What a convolution with ReLU makes of a picture-like input."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(4, 3, 64, 64, generator=generator)
    smooth = nn.functional.avg_pool2d(noise, 5, 1, 2)
    weight = torch.randn(32, 3, 3, 3, generator=generator)
    return nn.functional.conv2d(smooth, weight, padding=1).relu().flatten()[:N]


def draw(kind: str) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    normal = torch.randn(N, generator=generator)
    if kind == "laplace":
        u = torch.rand(N, generator=generator) - 0.5
        return -u.sign() * (1 - 2 * u.abs()).clamp(min=1e-7).log()
    if kind == "relu":
        return normal.relu()
    return activations() if kind == "real" else normal


@pytest.mark.parametrize("kind", ["gauss", "laplace", "relu", "real"])
@pytest.mark.parametrize("steps", [8, 16, 50])
def test_codes_take_their_entropy_plus_four_percent_and_the_table(kind: str, steps: int) -> None:
    x = draw(kind)
    codes = ((x - x.min()) / (x.max() - x.min()) * steps).round().to(torch.uint8)
    coded = entropy_encode(codes, codes.numel())
    assert coded is not None
    table = len(store(normalise(torch.bincount(codes.long(), minlength=256).tolist())))
    assert coded.numel() - table <= 1.04 * entropy_bytes(codes)
    out = torch.empty_like(codes)
    entropy_decode(coded, out)
    assert torch.equal(out, codes)


@pytest.mark.parametrize("kind", ["gauss", "laplace", "relu", "real"])
@pytest.mark.parametrize("part", [0.01, 0.001])
def test_bounded_codes_take_their_entropy_plus_four_percent(kind: str, part: float) -> None:
    x = draw(kind)
    error = float(x.abs().max()) * part
    codec = Bounded(error=error, rounding="nearest", entropy=True)
    payload = codec.encode(x)
    integers = (codec.decode(payload).double() / (2 * error * (1 - 1 / 1024))).round()
    ideal = entropy_bytes((integers - integers.min()).long())
    assert int(payload.data[0]) == 1
    assert payload.data.numel() - 514 <= 1.04 * ideal


def test_uniform_codes_fall_back_to_plain_packing() -> None:
    codes = torch.randint(0, 4, (N,), dtype=torch.uint8)
    assert entropy_encode(codes, N // 4) is None


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 65535, 65536, 65537])
def test_every_length_comes_back(backend: str, n: int) -> None:
    codes = (torch.arange(n) * 2654435761 % 97 % 7).to(torch.uint8)
    coded = entropy_encode(codes, 1 << 30)
    assert coded is not None
    out = torch.empty_like(codes)
    entropy_decode(coded, out)
    assert torch.equal(out, codes)


def test_a_lone_code_comes_back(backend: str) -> None:
    codes = torch.full((1000,), 255, dtype=torch.uint8)
    coded = entropy_encode(codes, 2000)
    assert coded is not None
    out = torch.empty_like(codes)
    entropy_decode(coded, out)
    assert torch.equal(out, codes)


@pytest.mark.parametrize(
    "counts",
    [[1] * 256, [10**9] + [1] * 255, [0] * 255 + [5], [0] * 256, [1, 0, 10**12] + [3] * 253],
)
def test_frequencies_sum_to_the_scale_and_forget_nothing(counts: list[int]) -> None:
    found = normalise(counts)
    assert sum(found) == SCALE
    assert max(found) < SCALE
    assert all(f > 0 for f, c in zip(found, counts, strict=True) if c)


def test_frequencies_are_near_the_best_possible() -> None:
    counts = [int(1e6 * math.exp(-0.3 * s)) for s in range(40)]
    total = sum(counts)
    found = normalise(counts)
    entropy = -sum(c / total * math.log2(c / total) for c in counts)
    spent = sum(c / total * math.log2(SCALE / f) for c, f in zip(counts, found, strict=True))
    assert spent <= entropy * 1.002


def test_damaged_bytes_are_an_error_or_wrong_codes(backend: str) -> None:
    codes = (torch.arange(3000) % 7).to(torch.uint8)
    coded = entropy_encode(codes, 1 << 20)
    assert coded is not None
    out = torch.empty_like(codes)
    for size in (0, 1, 10, coded.numel() // 2):
        with pytest.raises(DamagedError):
            entropy_decode(coded[:size], out)
    refused = 0
    for at in range(0, coded.numel(), 37):
        damaged = coded.clone()
        damaged[at] ^= 1 << at % 8
        try:
            entropy_decode(damaged, out)
        except DamagedError:
            refused += 1
    assert refused > 0


def test_only_flat_bytes_are_codes() -> None:
    with pytest.raises(TypeError, match="flat uint8"):
        entropy_encode(torch.zeros(3, dtype=torch.int64), 100)
