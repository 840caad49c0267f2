"""What is told is what is held: `Stats` against the live bytes after a forward pass.

The batch is made in the pass, and the loss saves nothing: then all that lives is what autograd and
actzip hold.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import actzip
from actzip.tasks.models.decoder import Decoder
from actzip.tasks.models.resnet import cifar_resnet
from actzip.tasks.models.vit import ViT

Network = Callable[[], tuple[nn.Module, Callable[[nn.Module], Tensor]]]


def _pictures(model: nn.Module, batch: int) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    x = torch.randn(batch, 3, 32, 32)
    return model, lambda m: m(x.clone()).mean()


def _mlp() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    x = torch.randn(512, 64)
    layers = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 64)]
    return nn.Sequential(*layers), lambda m: m(x.clone()).mean()


def _gpt() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    ids = torch.randint(0, 256, (8, 64))
    return Decoder(256, 64, 128, 2, 4), lambda m: m(ids.clone()).mean()


def _lstm() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    x = torch.randn(32, 50, 64)
    return nn.LSTM(64, 64, batch_first=True), lambda m: m(x.clone())[0].mean()


def _convnet() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    x = torch.randn(16, 3, 48, 48)
    layers = [nn.Conv2d(3, 32, 3), nn.SiLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Conv2d(32, 32, 3)), lambda m: m(x.clone()).mean()


NETWORKS: dict[str, Network] = {
    "mlp": _mlp,
    "gpt": _gpt,
    "lstm": _lstm,
    "convnet": _convnet,
    "resnet": lambda: _pictures(cifar_resnet(8), 16),
    "vit": lambda: _pictures(ViT(32, 4, 96, 2, 3), 16),
}


@dataclass(frozen=True)
class _Held:
    live: int  #: bytes after forward
    told: int  #: stored bytes by the report
    ratio: float


def _held(network: Network, method: str | None) -> _Held:
    torch.manual_seed(0)
    model, loss = network()
    session = None if method is None else actzip.compress(model, method)
    for _ in range(2):  # with a first look
        loss(model).backward()
    gc.collect()
    with actzip.measure() as m:
        out = loss(model)
        gc.collect()
    stats = None if session is None else session.stats()
    out.backward()
    if session is None or stats is None:
        return _Held(m.live_end, 0, 1.0)
    session.remove()
    return _Held(m.live_end, stats.stored_bytes, stats.ratio)


@pytest.mark.parametrize("method", ["fixed", "actnn", "lossless"])
@pytest.mark.parametrize("network", NETWORKS)
def test_what_is_told_is_held(network: str, method: str) -> None:
    plain, ours = _held(NETWORKS[network], None), _held(NETWORKS[network], method)
    assert ours.told == pytest.approx(ours.live, rel=0.03)
    assert ours.ratio == pytest.approx(plain.live / ours.live, rel=0.03)
