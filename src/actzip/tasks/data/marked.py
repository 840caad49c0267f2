"""A user's pictures for detect: in the layout of Pascal VOC, of COCO or of YOLO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from actzip.tasks.data import coco, dense, layout, reading, voc, yolo
from actzip.tasks.data.contract import Boxes, Data, DataError, Request
from actzip.tasks.data.dense import Scene
from actzip.tasks.data.layout import Found
from actzip.tasks.data.pictures import Scale
from actzip.tasks.data.problems import Problems
from actzip.tasks.data.scene_file import Item, Object

SIDE = 128  #: of the pictures, unless another is asked for
_SLACK = 1.0  #: pixels that a box may reach out of its picture: rounding, or counting from 0 or 1
EXPECTED = """\
  JPEGImages/ + Annotations/*.xml [+ ImageSets/Main/]   Pascal VOC, also inside VOCdevkit/
  images/ + annotations/*.xml, or each XML file beside its picture, with or without train/ test/
  annotations/*.json + pictures, or train/_annotations.coco.json   COCO
  images/train/ + labels/train/*.txt, or train/images/ + train/labels/   YOLO"""

_LAYOUTS: tuple[Callable[[Path, Problems], Found[Item] | None], ...] = (
    voc.find,
    coco.find,
    yolo.find,
)


@dataclass(frozen=True, eq=False)
class Annotated:
    """Pictures of one size with their boxes."""

    images: Tensor
    boxes: list[Boxes]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Scene:
        return Scene(self.images[index], self.boxes[index])


def find(root: Path, problems: Problems) -> Found[Item] | None:
    """The pictures and where their boxes are written; None when no layout fits."""
    if not root.is_dir():
        return None
    root = layout.unwrapped(root)
    return next((found for each in _LAYOUTS if (found := each(root, problems))), None)


def read(request: Request) -> Data:
    """All pictures decoded and stretched to a square, the boxes with them."""
    root, problems = Path(request.name), Problems()
    found = find(root, problems)
    if found is None:
        raise layout.unknown(root, request.task, EXPECTED, problems)
    side = request.side or SIDE
    train, test = (_objects(part, problems) for part in layout.divide(found, request))
    named = {one.name for _, _, objects in train for one in objects}
    classes = tuple(n for n in found.classes if n in named) or tuple(sorted(named))
    if not classes:
        raise DataError(f"the training pictures of {root} have no object; {problems.said()}")
    first = _annotated(train, classes, side, problems, "training", root)
    second = _annotated(test, classes, side, problems, "test", root)
    scale, wrong = Scale.of(first.images), problems.end(request.name, request.strict)
    return dense.data(request, first, second, scale, True, classes, side, found.layout, wrong)


_Read = tuple[Item, tuple[int, int], list[Object]]


def _objects(items: Sequence[Item], problems: Problems) -> list[_Read]:
    """The objects of each picture that can be read."""
    found: list[_Read] = []
    sizes = reading.sizes([item.picture for item in items], problems)
    for item, size in zip(items, sizes, strict=True):
        if size is None:
            continue
        try:
            objects = item.objects(*size, problems)
        except DataError as error:
            problems.note(str(error))
            continue
        whole = (_inside(item, one, size, problems) for one in objects)
        found.append((item, size, [one for one in whole if one is not None]))
    return found


def _inside(item: Item, one: Object, size: tuple[int, int], problems: Problems) -> Object | None:
    """The object with its box cut to the picture; None for a box that is none."""
    width, height = size
    left, top, right, bottom = one.box
    reach = left >= -_SLACK and top >= -_SLACK
    reach = reach and right <= width + _SLACK and bottom <= height + _SLACK
    cut = (max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height)))
    if reach and cut[0] < cut[2] and cut[1] < cut[3]:
        return Object(one.name, cut)
    problems.note(
        f"{item.source}: the box of {item.picture.name} ({one.name}), {left:g} {top:g} {right:g} "
        f"{bottom:g}, is empty or outside the picture of {width}×{height}"
    )
    return None


def _annotated(
    part: list[_Read],
    classes: tuple[str, ...],
    side: int,
    problems: Problems,
    split: str,
    root: Path,
) -> Annotated:
    numbers = {name: label for label, name in enumerate(classes)}
    decoded = reading.pictures([item.picture for item, _, _ in part], side, problems)
    images, boxes = [], []
    for (item, (width, height), objects), picture in zip(part, decoded, strict=True):
        if picture is None:
            continue
        for one in objects:
            if one.name not in numbers:
                problems.note(f"{item.source}: no training picture has a {one.name!r}")
        known = [one for one in objects if one.name in numbers]
        stretch = torch.tensor([side / width, side / height] * 2)
        corners = torch.tensor([one.box for one in known], dtype=torch.float32).view(-1, 4)
        labels = torch.tensor([numbers[one.name] for one in known], dtype=torch.int64)
        images.append(picture)
        boxes.append(Boxes(corners * stretch, labels))
    layout.nonempty(images, split, root, problems)
    return Annotated(torch.stack(images), boxes)
