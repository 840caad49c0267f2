"""Object detection: focal, GIoU and centerness losses; mean average precision as COCO counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from actzip.tasks.boxes import giou, suppress
from actzip.tasks.coco_map import MOST, Detections, mean_average_precision
from actzip.tasks.data import Boxes
from actzip.tasks.fcos_targets import Answers, assign, corners
from actzip.tasks.models.detector import Detector, Places, Prediction, places
from actzip.tasks.moved import moved
from actzip.tasks.task import Batch, Model, Recipe, Task

if TYPE_CHECKING:
    from actzip.tasks.data import Data

_ALPHA, _GAMMA = 0.25, 2.0  #: of the focal loss, as published
_LEAST = 0.05  #: score below which a place is not asked
_OVERLAP = 0.6  #: two boxes of a class that overlap more are one object
_CANDIDATES = 300  #: best places of a picture that suppression looks at


def _detector(data: Data, width: int, depth: int, pyramid: int, tower: int) -> nn.Module:
    return Detector(len(data.classes), data.channels, width, depth, pyramid, tower)


_HOST = torch.device("cpu")


class Detect(Task):
    """Pictures (n, C, H, W) to boxes with classes."""

    name = "detect"
    metric = "map50"
    data = "scenes"
    model = "fcos"
    models: ClassVar[Mapping[str, Model]] = {
        "fcos": Model(
            _detector,
            Recipe("adamw", 2e-3, 0.01, epochs=10, batch=16, clip=10.0),
            {"width": 32, "depth": 2, "pyramid": 64, "tower": 2},
        )
    }

    def loss(self, model: nn.Module, inputs: Tensor, targets: Any) -> Tensor:
        where = Places(*moved(list(places(*inputs.shape[-2:])), inputs.device))
        return detection_loss(model(inputs), where, targets)

    def evaluate(
        self, model: nn.Module, batches: Iterable[Batch], classes: int
    ) -> dict[str, float]:
        found: list[Detections] = []
        truth: list[Boxes] = []
        for inputs, targets in batches:
            said = Prediction(*moved(list(model(inputs)), _HOST))  # one copy, then small steps
            found += decode(said, places(*inputs.shape[-2:]))
            truth += moved(targets, _HOST)
        return mean_average_precision(found, truth, classes)


def detection_loss(said: Prediction, where: Places, truth: list[Boxes]) -> Tensor:
    """The three losses of FCOS, summed; each is per place that answers for an object."""
    answers = Answers(*map(torch.stack, zip(*(assign(where, b) for b in truth), strict=True)))
    said = Prediction(*(each.float() for each in said))
    positive = answers.labels >= 0
    count = positive.sum().clamp(min=1)
    wanted = torch.zeros_like(said.logits)
    wanted[positive, answers.labels[positive]] = 1
    boxes = corners(where.points, said.distances)[positive]
    weight = answers.centerness[positive]
    pulled = ((1 - giou(boxes, answers.corners[positive])) * weight).sum() / weight.sum().clamp(
        min=1e-6
    )
    central = F.binary_cross_entropy_with_logits(said.centerness[positive], weight, reduction="sum")
    return focal(said.logits, wanted) / count + pulled + central / count


def focal(logits: Tensor, wanted: Tensor) -> Tensor:
    """Cross-entropy in which what is right already counts little (Lin et al. 2017); the sum."""
    chance = logits.sigmoid()
    wrong = torch.where(wanted > 0, 1 - chance, chance)
    balance = torch.where(wanted > 0, _ALPHA, 1 - _ALPHA)
    entropy = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    return (balance * wrong**_GAMMA * entropy).sum()


def decode(said: Prediction, where: Places) -> list[Detections]:
    """The detections of each picture: the best places, one for each object."""
    chances = said.logits.float().sigmoid() * said.centerness.float().sigmoid().unsqueeze(-1)
    found = []
    for scores, distances in zip(chances.sqrt(), said.distances.float(), strict=True):
        best, labels = scores.max(-1)
        order = best.argsort(descending=True, stable=True)[:_CANDIDATES]
        order = order[best[order] > _LEAST]
        boxes = corners(where.points[order], distances[order])
        kept = suppress(boxes, best[order], labels[order], _OVERLAP)[:MOST]
        found.append(Detections(boxes[kept], labels[order][kept], best[order][kept]))
    return found
