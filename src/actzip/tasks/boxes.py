"""Boxes as corners (left, top, right, bottom): how much they overlap, and which to keep."""

from __future__ import annotations

import torch
from torch import Tensor


def area(boxes: Tensor) -> Tensor:
    """(…, 4) to (…); an empty or inverted box has none."""
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1)


def overlap(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Areas of intersection and union of boxes that broadcast against each other."""
    low = torch.maximum(a[..., :2], b[..., :2])
    high = torch.minimum(a[..., 2:], b[..., 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    return shared, area(a) + area(b) - shared


def iou(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union, (n, 4) against (m, 4) gives (n, m)."""
    shared, union = overlap(a[:, None], b[None])
    return shared / union.clamp(min=1e-9)


def giou(a: Tensor, b: Tensor) -> Tensor:
    """Generalised IoU of pairs (Rezatofighi et al. 2019), in (-1, 1]: apart boxes feel a pull."""
    shared, union = overlap(a, b)
    low = torch.minimum(a[..., :2], b[..., :2])
    high = torch.maximum(a[..., 2:], b[..., 2:])
    hull = (high - low).clamp(min=0).prod(-1).clamp(min=1e-9)
    return shared / union.clamp(min=1e-9) - (hull - union) / hull


def suppress(boxes: Tensor, scores: Tensor, labels: Tensor, limit: float) -> Tensor:
    """Indices to keep, best first: none overlaps a better one of its class by more than `limit`."""
    order = scores.argsort(descending=True, stable=True)
    boxes, labels = boxes[order], labels[order]
    rivals = (iou(boxes, boxes) > limit) & (labels[:, None] == labels[None])
    alive = torch.ones(len(order), dtype=torch.bool)
    for index in range(len(order)):
        if alive[index]:
            alive[index + 1 :] &= ~rivals[index, index + 1 :]
    return order[alive]
