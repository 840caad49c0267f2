"""Average precision of detections as COCO counts it (Lin et al. 2014), for objects of all sizes.

Detections of a class, best first, take the unclaimed object of their picture that they overlap
most, if by at least the threshold. Precision is made non-increasing and read at 101 recalls.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from actzip.tasks.boxes import iou
from actzip.tasks.data import Boxes

THRESHOLDS = tuple(0.5 + 0.05 * step for step in range(10))
MOST = 100  #: detections of a picture that count, the best ones
#: k · 0.01, not k / 100: where a recall meets one of them exactly, COCO's rounding decides
_RECALLS = torch.arange(101, dtype=torch.float64) * 0.01


class Detections(NamedTuple):
    """What was found in one picture."""

    corners: Tensor  #: (k, 4)
    labels: Tensor  #: (k,)
    scores: Tensor  #: (k,)


def mean_average_precision(
    found: list[Detections], truth: list[Boxes], classes: int
) -> dict[str, float]:
    """`map50` at IoU 0.5 and `map` over 0.5 to 0.95, means over the classes that occur."""
    found = [_best(each) for each in found]
    rows = [
        [_average_precision(found, truth, label, threshold) for threshold in THRESHOLDS]
        for label in range(classes)
        if any((boxes.labels == label).any() for boxes in truth)
    ]
    if not rows:
        raise ValueError("mean average precision needs at least one object in the test set")
    table = torch.tensor(rows, dtype=torch.float64)
    return {"map50": table[:, 0].mean().item(), "map": table.mean().item()}


def _best(found: Detections) -> Detections:
    order = found.scores.argsort(descending=True, stable=True)[:MOST]
    return Detections(*(each[order] for each in found))


def _average_precision(
    found: list[Detections], truth: list[Boxes], label: int, threshold: float
) -> float:
    scores, hits, objects = [], [], 0
    for each, boxes in zip(found, truth, strict=True):
        mine, theirs = each.labels == label, boxes.labels == label
        scores.append(each.scores[mine])
        hits.append(_hits(iou(each.corners[mine], boxes.corners[theirs]), threshold))
        objects += int(theirs.sum())
    order = torch.cat(scores).argsort(descending=True, stable=True)
    right = torch.cat(hits)[order].double()
    true = right.cumsum(0)
    recall = true / objects
    precision = true / torch.arange(1, len(right) + 1, dtype=torch.float64)
    envelope = precision.flip(0).cummax(0).values.flip(0)
    at = torch.searchsorted(recall, _RECALLS)
    padded = torch.cat([envelope, torch.zeros(1, dtype=torch.float64)])
    return padded[at].mean().item()


def _hits(overlaps: Tensor, threshold: float) -> Tensor:
    """Which detections (rows, best first) claim an object (column)."""
    free = torch.ones(overlaps.shape[1], dtype=torch.bool)
    hits = torch.zeros(len(overlaps), dtype=torch.bool)
    if overlaps.shape[1]:
        for row, values in enumerate(overlaps):
            best, column = torch.where(free, values, -1.0).max(0)
            if best >= threshold:
                free[column] = False
                hits[row] = True
    return hits
