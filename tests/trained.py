"""Networks trained on the digits for a moment: real activations and real gradients for tests."""

from __future__ import annotations

import copy
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from actzip.tasks import digits
from actzip.tasks.models.resnet import BasicBlock, ResNet, cifar_stem
from actzip.tasks.models.vit import ViT


class Caught(NamedTuple):
    """What a module was given, and the gradient that came back to its output."""

    module: nn.Module
    x: Tensor
    gy: Tensor


_load = cache(digits.load)


def batch(first: int = 0, size: int = 32) -> tuple[Tensor, Tensor]:
    data = _load(side=16)
    return data.train_x[first : first + size], data.train_y[first : first + size]


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> nn.Module:
    for step in range(steps):
        x, y = batch(32 * step)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.zero_grad()
    return model


@cache
def _resnet() -> nn.Module:
    torch.manual_seed(0)
    model = ResNet(cifar_stem(1, 8), BasicBlock, (1, 1), 8, 10)
    return _train(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), 30)


@cache
def _vit() -> nn.Module:
    torch.manual_seed(0)
    model = ViT(image=16, patch=4, width=64, depth=2, heads=2, classes=10, channels=1)
    return _train(model, torch.optim.AdamW(model.parameters(), 1e-3), 40)


def resnet() -> nn.Module:
    """A ResNet with one block of 8 and one of 16 channels, partly trained; a copy for each."""
    return copy.deepcopy(_resnet())


def vit() -> nn.Module:
    """A ViT with 17 tokens of 64 in 2 heads, partly trained; a copy for each."""
    return copy.deepcopy(_vit())


@cache
def caught(kind: str) -> dict[str, Caught]:
    """Every module without parts of its own, in one forward and backward of a batch."""
    model = resnet() if kind == "resnet" else vit()
    found: dict[str, Caught] = {}

    def catch(name: str, module: nn.Module, x: Tensor, y: Tensor) -> None:
        kept = x.detach().clone()
        y.register_hook(lambda g: found.update({name: Caught(module, kept, g.detach().clone())}))

    handles = [
        module.register_forward_hook(lambda m, args, y, name=name: catch(name, m, args[0], y))
        for name, module in model.named_modules()
        if not list(module.children()) and not isinstance(module, nn.ReLU)
    ]
    x, y = batch(960)
    F.cross_entropy(model(x), y).backward()
    for handle in handles:
        handle.remove()
    return found


def gradient_like(shape: tuple[int, ...], real: Tensor) -> Tensor:
    """Real gradients in another shape, each sample's own, over and over."""
    rows = real.flatten(1)
    each = torch.Size(shape[1:]).numel()
    return rows.repeat(1, -(-each // rows.shape[1]))[: shape[0], :each].reshape(shape).contiguous()
