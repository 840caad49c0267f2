"""Image classification: cross-entropy, top-1 accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from actzip.tasks.models.densenet import DenseNet, densenet161
from actzip.tasks.models.resnet import cifar_resnet, resnet18, resnet50, resnet152
from actzip.tasks.models.vgg import VGG
from actzip.tasks.models.vit import ViT
from actzip.tasks.task import Batch, Model, Recipe, Task

if TYPE_CHECKING:
    from actzip.tasks.data import Data

_TRANSFORMER = Recipe("adamw", 1e-3, 0.05, clip=1.0)


def _cifar(depth: int) -> Model:
    def build(data: Data, width: int) -> nn.Module:
        return cifar_resnet(depth, len(data.classes), data.channels, width)

    return Model(build, Recipe(), {"width": 16})


def _imagenet(make: Callable[..., nn.Module]) -> Model:
    def build(data: Data, width: int) -> nn.Module:
        return make(len(data.classes), data.channels, width)

    return Model(build, Recipe(), {"width": 64})


def _vgg(data: Data, width: int, stages: int, hidden: int, dropout: float) -> nn.Module:
    widths = [(width << min(i, 3),) * (1 if i < 2 else 2) for i in range(stages)]
    return VGG(
        widths,
        len(data.classes),
        data.channels,
        norm=True,
        hidden=hidden,
        pooled=1,
        dropout=dropout,
    )


def _densenet(data: Data, growth: int, layers: int) -> nn.Module:
    depths = (layers,) * 3
    return DenseNet(depths, growth, 2 * growth, len(data.classes), data.channels, small=True)


def _densenet161(data: Data, growth: int) -> nn.Module:
    if data.side < 32:
        raise ValueError(
            f"densenet161 halves pictures five times: they need a side of 32 or more, got "
            f"{data.side}; give --side 32, or take the model densenet"
        )
    return densenet161(len(data.classes), data.channels, growth)


def _vit(data: Data, patch: int, width: int, depth: int, heads: int, dropout: float) -> nn.Module:
    classes = len(data.classes)
    return ViT(data.side, patch, width, depth, heads, classes, data.channels, dropout)


class Classify(Task):
    """Pictures (n, C, H, W) to a class each."""

    name = "classify"
    metric = "top1"
    data = "digits"
    model = "resnet20"
    models: ClassVar[Mapping[str, Model]] = {
        **{f"resnet{depth}": _cifar(depth) for depth in (8, 14, 20, 32, 44, 56)},
        "resnet18": _imagenet(resnet18),
        "resnet50": _imagenet(resnet50),
        "resnet152": _imagenet(resnet152),
        "vgg": Model(
            _vgg,
            Recipe(rate=0.05),
            {"width": 32, "stages": 4, "hidden": 256, "dropout": 0.3},
        ),
        "densenet": Model(_densenet, Recipe(), {"growth": 12, "layers": 6}),
        "densenet161": Model(_densenet161, Recipe(), {"growth": 48}),
        "vit": Model(
            _vit,
            _TRANSFORMER,
            {"patch": 4, "width": 64, "depth": 4, "heads": 4, "dropout": 0.0},
        ),
    }

    def loss(self, model: nn.Module, inputs: Tensor, targets: Any) -> Tensor:
        return F.cross_entropy(model(inputs), targets)

    def evaluate(
        self, model: nn.Module, batches: Iterable[Batch], classes: int
    ) -> dict[str, float]:
        right = count = 0
        for inputs, targets in batches:
            right += int((model(inputs).argmax(1) == targets).sum())
            count += len(targets)
        return {"top1": right / count}
