"""The live peak of a look, a backward pass whose gradients are read, against usual steps."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip.tasks.models.decoder import Decoder
from actzip.tasks.models.resnet import cifar_resnet

STEPS = 5  #: a look is among them, and a usual step


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
        return out


class _Text(nn.Module):
    """A small transformer; its ids are made of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = Decoder(128, 64, 64, 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.decoder(x.abs().mul(1000).long().remainder(128))
        return out


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(*(_Block(128) for _ in range(4))), (1024, 128)),
    "resnet": (lambda: cifar_resnet(8), (32, 3, 32, 32)),
    "gpt": (_Text, (8, 64)),
}


def _peaks(network: str, method: str | None) -> tuple[list[int], list[bool]]:
    """Of each step from the first on, all that tensors hold, and whether it was looked at."""
    torch.manual_seed(0)
    make, shape = NETWORKS[network]
    borders, looked = [], []
    gc.collect()
    with actzip.measure() as m:
        began = time.time_ns()
        model, x = make(), torch.randn(shape)
        optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
        session = None
        if method is not None:
            session = actzip.compress(model, method, optimizer=optimizer)
        for _ in range(STEPS):
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            borders.append((time.time_ns() - began) / 1e9)
            looked.append(session is not None and session._looks)
    found, last = [], 0.0
    for border in borders:
        found.append(max(held for at, held in m.timeline if last <= at <= border))
        last = border
    return found, looked


_plain = functools.cache(lambda network: max(_peaks(network, None)[0]))


@pytest.mark.parametrize("method", ["actnn", "comet"])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_look_holds_little_more_than_a_usual_step(network: str, method: str) -> None:
    found, looked = _peaks(network, method)
    looks = max(p for p, seen in zip(found, looked, strict=True) if seen)
    usual = max(p for p, seen in zip(found, looked, strict=True) if not seen)
    assert looks <= 1.1 * usual
    assert looks < _plain(network)


@pytest.mark.parametrize(
    ("network", "method"),
    [("resnet", "acgc"), ("resnet", "auto"), ("gpt", "acgc"), ("gpt", "auto")],
)
def test_no_look_holds_more_than_plain_does_from_the_first_step_on(
    network: str, method: str
) -> None:
    """AC-GC looks in each of these steps; `auto` asks for slopes of what is derived from codes."""
    found, looked = _peaks(network, method)
    assert looked[0]
    assert max(found) < _plain(network)
