"""Which place of a detector answers for which object: FCOS's rule."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from actzip.tasks.boxes import area
from actzip.tasks.data import Boxes
from actzip.tasks.models.detector import STRIDES, Places

#: longest distance to a side that a level answers for, in its strides; the coarsest takes the rest
_REACH = 6.0
_RADIUS = 1.5  #: only places within so many strides of an object's middle answer for it


class Answers(NamedTuple):
    """What each place should say; `labels` is -1 where there is no object."""

    labels: Tensor  #: (places,)
    corners: Tensor  #: (places, 4)
    centerness: Tensor  #: (places,), 1 in the middle of the object and 0 at its border


def assign(places: Places, boxes: Boxes) -> Answers:
    """A place answers for the smallest object that holds it, is near it, and fits its level."""
    points, strides = places
    if not len(boxes.labels):
        zeros = points.new_zeros(len(points))
        return Answers(zeros.long() - 1, points.new_zeros(len(points), 4), zeros)
    corners = boxes.corners
    distances = sides(points[:, None], corners[None])  # (places, objects, 4)
    longest = distances.amax(-1)
    low = torch.where(strides == STRIDES[0], 0.0, strides / 2 * _REACH)
    high = torch.where(strides == STRIDES[-1], float("inf"), strides * _REACH)
    middle = (corners[:, :2] + corners[:, 2:]) / 2
    near = (points[:, None] - middle[None]).abs().amax(-1) < _RADIUS * strides[:, None]
    fits = (longest > low[:, None]) & (longest <= high[:, None])
    candidates = near & fits & (distances.amin(-1) > 0)
    sizes = torch.where(candidates, area(corners)[None], float("inf"))
    smallest, chosen = sizes.min(1)
    labels = torch.where(smallest.isfinite(), boxes.labels[chosen], -1)
    return Answers(labels, corners[chosen], central(distances[torch.arange(len(points)), chosen]))


def sides(points: Tensor, corners: Tensor) -> Tensor:
    """Distances from points to the left, top, right and bottom of boxes; negative when outside."""
    return torch.cat([points - corners[..., :2], corners[..., 2:] - points], dim=-1)


def corners(points: Tensor, distances: Tensor) -> Tensor:
    """The boxes that lie so far around the points: `sides` turned around."""
    return torch.cat([points - distances[..., :2], points + distances[..., 2:]], dim=-1)


def central(distances: Tensor) -> Tensor:
    """sqrt(min(l, r)/max(l, r) · min(t, b)/max(t, b)), 0 for a point outside."""
    low = torch.minimum(distances[..., :2], distances[..., 2:]).clamp(min=0)
    high = torch.maximum(distances[..., :2], distances[..., 2:]).clamp(min=1e-9)
    return (low / high).prod(-1).sqrt()
