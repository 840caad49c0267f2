"""Segmentation: cross-entropy per pixel, mean intersection over union."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from actzip.tasks.data.contract import IGNORE
from actzip.tasks.models.unet import UNet
from actzip.tasks.task import Batch, Model, Recipe, Task

if TYPE_CHECKING:
    from actzip.tasks.data import Data


def _unet(data: Data, width: int, levels: int) -> nn.Module:
    if data.side % (1 << levels):
        raise ValueError(
            f"a U-Net of {levels} levels needs pictures whose side is a multiple of "
            f"{1 << levels}, {data.name} has {data.side}; choose another side or fewer levels"
        )
    return UNet(len(data.classes), data.channels, width, levels)


class Segment(Task):
    """Pictures (n, C, H, W) to a class for each pixel."""

    name = "segment"
    metric = "miou"
    data = "scenes"
    model = "unet"
    models: ClassVar[Mapping[str, Model]] = {
        "unet": Model(
            _unet, Recipe("adamw", 2e-3, 0.01, epochs=5, batch=16), {"width": 16, "levels": 3}
        )
    }

    def loss(self, model: nn.Module, inputs: Tensor, targets: Any) -> Tensor:
        return F.cross_entropy(model(inputs), targets, ignore_index=IGNORE)

    def evaluate(
        self, model: nn.Module, batches: Iterable[Batch], classes: int
    ) -> dict[str, float]:
        confusion = torch.zeros(classes, classes, dtype=torch.int64)
        for inputs, targets in batches:
            confusion += count(model(inputs).argmax(1), targets, classes).cpu()
        return scores(confusion)


def count(said: Tensor, truth: Tensor, classes: int) -> Tensor:
    """How often pixels of a class (row) were said to be of another (column)."""
    known = truth != IGNORE
    pairs = truth[known] * classes + said[known]
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def scores(confusion: Tensor) -> dict[str, float]:
    """`miou`, the mean over classes that are there or were said to be; `pixels` that are right."""
    right = confusion.diag()
    union = confusion.sum(0) + confusion.sum(1) - right
    there = union > 0
    if not there.any():
        raise ValueError("mean intersection over union needs at least one labelled pixel")
    miou = (right[there] / union[there]).mean()
    return {"miou": miou.item(), "pixels": (right.sum() / confusion.sum()).item()}
