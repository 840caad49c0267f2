"""Dithered stores its codes within 6 % of their entropy given the dither, from 0.1 to 4 bits, with
everything that is stored beside them; and encoding makes no copy of the tensor."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from actzip.codecs import Codec, Dithered, Rectified
from actzip.kernels.reference.dither import dither
from actzip.memory.measure import live_peak
from actzip.tasks import digits
from actzip.tasks.models.resnet import cifar_resnet

N = 1 << 18
SEED = 7
RANGES = 32  #: of the dither, that the entropy is given
#: In standard deviations: 4 bits of normal values take 0.26, 0.1 bits take 27.
STEPS = (0.12, 0.26, 0.6, 1.0, 2.0, 4.0, 6.0, 10.0, 18.0, 27.0)


@cache
def batchnorm_input() -> Tensor:
    """Of the second BatchNorm of a ResNet-8, ten steps trained on the digits."""
    torch.manual_seed(0)
    train = digits.load(16)
    model = cifar_resnet(8, 10, 1, width=8)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for first in range(0, 640, 64):
        optimizer.zero_grad()
        at = slice(first, first + 64)
        F.cross_entropy(model(train.train_x[at]), train.train_y[at]).backward()
        optimizer.step()
    seen: list[Tensor] = []
    norm = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)][1]
    norm.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    with torch.no_grad():
        model(train.train_x[:128])
    return seen[0]


@cache
def values(kind: str) -> Tensor:
    if kind == "BatchNorm input":
        return batchnorm_input()
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(N, generator=generator)
    if kind == "Laplace":
        u = torch.rand(N, generator=generator) - 0.5
        return -u.sign() * (1 - 2 * u.abs()).clamp(min=1e-7).log()
    return normal.relu() if kind == "ReLU" else normal


def conditional_entropy(x: Tensor, step: float) -> float:
    """Bits of the codes given which range their dither is in."""
    v = dither(SEED, 0, x.numel(), x.device)
    r = torch.round(x.reshape(-1) / step + v).long()
    r -= r.min()
    width = int(r.max()) + 1
    places = ((v + 0.5) * RANGES).long() * width + r
    counts = torch.bincount(places, minlength=RANGES * width).view(RANGES, width).double()
    p = counts / counts.sum(1, keepdim=True)
    return float(-(counts * torch.where(p > 0, p, torch.ones_like(p)).log2()).sum() / x.numel())


@pytest.mark.parametrize("kind", ["normal", "Laplace", "ReLU", "BatchNorm input"])
def test_stored_bits_are_within_six_per_cent_of_the_entropy(kind: str) -> None:
    x = values(kind)
    assert x.numel() >= N
    tried = []
    for relative in STEPS:
        step = relative * float(x.std())
        entropy = conditional_entropy(x, step)
        if not 0.1 <= entropy <= 4:
            continue
        tried.append(entropy)
        stored = 8 * Dithered(step / 2).encode(x, seed=SEED).data.numel() / x.numel()
        assert 0.98 < stored / entropy < 1.06, f"step {relative}: {stored:.3f} for {entropy:.3f}"
    assert min(tried) < 0.2
    assert max(tried) > 3


CHANNELS = 64
ERRORS = tuple(0.5 + k / CHANNELS for k in range(CHANNELS))
#: Codecs whose steps, or origins, are those of channels.
CODECS: list[Codec] = [
    Dithered(ERRORS),
    Dithered(ERRORS, origin=tuple(e - 1 for e in ERRORS), coarser=3.0),
    Rectified(0.7),
]


@pytest.mark.parametrize("codec", CODECS, ids=lambda c: repr(c)[:30])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_no_memory_order_takes_a_copy_of_the_tensor(
    codec: Codec, order: torch.memory_format
) -> None:
    x = torch.randn(16, CHANNELS, 64, 64, generator=torch.Generator().manual_seed(0)).relu()
    x = x.to(memory_format=order)
    codec.encode(x)  # tables that are made once
    # payload, scratch of the kernels, and room that the payload might have taken
    assert live_peak(lambda: codec.encode(x)) < 0.5 * x.nbytes
