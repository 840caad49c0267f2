"""Pictures with a target for places in them: boxes (detect) or a label per pixel (segment)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from actzip.tasks.data.contract import Boxes, Data, Request
from actzip.tasks.data.pictures import Scale


@dataclass(frozen=True, eq=False)
class Scene:
    """One picture and what is where in it; a data set fills in what its task needs."""

    picture: Tensor  #: uint8 (3, side, side)
    boxes: Boxes | None = None
    labels: Tensor | None = None  #: int64 (side, side)


class Scenes(Protocol):
    """Numbered scenes, always the same for the same number."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Scene: ...


@dataclass(frozen=True, eq=False)
class Detection:
    """Examples of detect: normalised pictures, and the boxes of each."""

    scenes: Scenes
    scale: Scale
    flip: bool  #: whether training mirrors half of the pictures

    def __len__(self) -> int:
        return len(self.scenes)

    def batch(
        self, indices: Tensor, rng: torch.Generator | None = None
    ) -> tuple[Tensor, list[Boxes]]:
        """Pictures (n, 3, side, side) and n Boxes."""
        scenes = [self.scenes[index] for index in indices.tolist()]
        mirrored = _mirrored(len(scenes), self.flip, rng)
        pictures = _stack([scene.picture for scene in scenes], mirrored)
        boxes = [scene.boxes for scene in scenes if scene.boxes is not None]
        width = pictures.shape[-1]
        targets = [
            _mirror(one, width) if turned else one
            for one, turned in zip(boxes, mirrored, strict=True)
        ]
        return self.scale.apply(pictures), targets


@dataclass(frozen=True, eq=False)
class Segmentation:
    """Examples of segment: normalised pictures, and a label for each pixel."""

    scenes: Scenes
    scale: Scale
    flip: bool

    def __len__(self) -> int:
        return len(self.scenes)

    def batch(self, indices: Tensor, rng: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Pictures (n, 3, side, side) and labels (n, side, side)."""
        scenes = [self.scenes[index] for index in indices.tolist()]
        mirrored = _mirrored(len(scenes), self.flip, rng)
        pictures = _stack([scene.picture for scene in scenes], mirrored)
        labels = _stack([s.labels for s in scenes if s.labels is not None], mirrored)
        return self.scale.apply(pictures), labels


def data(
    request: Request,
    train: Scenes,
    test: Scenes,
    scale: Scale,
    flip: bool,
    classes: tuple[str, ...],
    side: int,
    layout: str = "",
    problems: tuple[str, ...] = (),
) -> Data:
    """Both splits for the task that was asked for."""
    kind = Detection if request.task == "detect" else Segmentation
    return Data(
        request.name,
        request.task,
        kind(train, scale, flip),
        kind(test, scale, flip),
        classes,
        channels=3,
        side=side,
        layout=layout,
        problems=problems,
    )


def measure(scenes: Scenes, count: int) -> Scale:
    """The scale of the first `count` scenes."""
    return Scale.of(torch.stack([scenes[i].picture for i in range(min(count, len(scenes)))]))


def _mirrored(count: int, flip: bool, rng: torch.Generator | None) -> list[bool]:
    if rng is None or not flip:
        return [False] * count
    chosen: list[bool] = (torch.rand(count, generator=rng) < 0.5).tolist()
    return chosen


def _stack(parts: Sequence[Tensor], mirrored: list[bool]) -> Tensor:
    return torch.stack(
        [part.flip(-1) if turned else part for part, turned in zip(parts, mirrored, strict=True)]
    )


def _mirror(boxes: Boxes, width: int) -> Boxes:
    left, top, right, bottom = boxes.corners.unbind(1)
    return Boxes(torch.stack([width - right, top, width - left, bottom], 1), boxes.labels)
