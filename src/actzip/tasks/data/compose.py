"""Scenes put together from small real pictures: several objects on one coloured ground.

Scene i is made when it is asked for, from (seed, part, i) alone, so it is always the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from actzip.tasks.data.contract import Boxes
from actzip.tasks.data.dense import Scene

_OBJECTS = (2, 5)  #: fewest and most that are tried; one that finds no room is left out
_SIZE = (0.25, 0.45)  #: of an object, as a part of the canvas
_TRIES = 10  #: places tried for an object
_OVERLAP = 0.25  #: the most of the smaller of two boxes that the other may cover
_GROUND = 110  #: the brightest the ground gets
_PATCHES = 4  #: the ground is a random field of so many patches each way, smoothed


@dataclass(frozen=True, eq=False)
class Composed:
    """`count` scenes of uint8 `objects` (n, 1, h, w) with labels (n,).

    Boxes hold every pixel of their object, hidden ones too; pixel labels are 0 for the ground
    and the object's label + 1 elsewhere, a later object hiding an earlier one.
    """

    objects: Tensor
    labels: Tensor
    count: int
    side: int
    seed: int
    part: int  #: 0 for training scenes, 1 for test scenes: they never draw the same numbers
    visible: int  #: brighter pixels belong to an object, the others to its surroundings

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Scene:
        if not 0 <= index < self.count:
            raise IndexError(f"scene {index} of {self.count}")
        draw = np.random.default_rng((self.seed, self.part, index))
        canvas = self._ground(draw)
        pixels = torch.zeros(self.side, self.side, dtype=torch.int64)
        corners: list[tuple[int, int, int, int]] = []
        labels: list[int] = []
        for _ in range(draw.integers(_OBJECTS[0], _OBJECTS[1] + 1)):
            chosen = int(draw.integers(len(self.objects)))
            grey = self._object(chosen, draw)
            box = _place(draw, grey, self.side, corners)
            if box is None:
                continue
            left, top, right, bottom = box
            shown = grey > self.visible
            tint = torch.from_numpy(draw.uniform(0.5, 1, (3, 1, 1))).float()
            area = canvas[:, top:bottom, left:right]
            area.copy_(torch.where(shown, grey * tint, area))
            label = int(self.labels[chosen])
            pixels[top:bottom, left:right][shown] = label + 1
            corners.append(box)
            labels.append(label)
        found = torch.tensor(corners, dtype=torch.float32).view(-1, 4)
        boxes = Boxes(found, torch.tensor(labels, dtype=torch.int64))
        return Scene(canvas.round_().to(torch.uint8), boxes, pixels)

    def _ground(self, draw: np.random.Generator) -> Tensor:
        patches = torch.from_numpy(draw.uniform(0, _GROUND, (1, 3, _PATCHES, _PATCHES))).float()
        size = (self.side, self.side)
        return F.interpolate(patches, size, mode="bilinear", align_corners=True)[0]

    def _object(self, chosen: int, draw: np.random.Generator) -> Tensor:
        """The object at a random size, cut to the pixels that are visible."""
        size = max(4, round(self.side * draw.uniform(*_SIZE)))
        whole = self.objects[chosen : chosen + 1].float()
        grey = F.interpolate(whole, (size, size), mode="bilinear", antialias=True)[0, 0]
        shown = grey > self.visible
        rows, columns = shown.any(1).nonzero(), shown.any(0).nonzero()
        if not len(rows):
            return grey[:0, :0]
        return grey[int(rows[0]) : int(rows[-1]) + 1, int(columns[0]) : int(columns[-1]) + 1]


def _place(
    draw: np.random.Generator,
    grey: Tensor,
    side: int,
    others: list[tuple[int, int, int, int]],
) -> tuple[int, int, int, int] | None:
    """A box of the object's size that leaves the others visible, or None."""
    height, width = grey.shape
    if not grey.numel():
        return None
    for _ in range(_TRIES):
        left = int(draw.integers(side - width + 1))
        top = int(draw.integers(side - height + 1))
        box = (left, top, left + width, top + height)
        if all(_covered(box, other) <= _OVERLAP for other in others):
            return box
    return None


def _covered(a: tuple[int, int, int, int], b: tuple[int, int, int, int]) -> float:
    """The common area as a part of the smaller box."""
    width = max(0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0, min(a[3], b[3]) - max(a[1], b[1]))
    smaller = min((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return width * height / smaller
