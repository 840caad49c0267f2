"""A user's pictures for detect: each with a Pascal VOC XML file of the same name.

The XML files lie beside the pictures, or the pictures in ``JPEGImages`` (or ``images``) and the
XML files in ``Annotations``; with or without train and test folders around them.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from actzip.tasks.data import dense, layout, reading
from actzip.tasks.data.contract import Boxes, Data, DataError, Request
from actzip.tasks.data.dense import Scene
from actzip.tasks.data.pictures import Scale

SIDE = 128  #: of the pictures, unless another is asked for
_EXPECTED = "pictures, each with a Pascal VOC XML file of the same name"


@dataclass(frozen=True, eq=False)
class Annotated:
    """Pictures of one size with their boxes."""

    images: Tensor
    boxes: list[Boxes]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Scene:
        return Scene(self.images[index], self.boxes[index])


@dataclass(frozen=True)
class _Object:
    name: str
    box: tuple[float, float, float, float]  #: 0-based, right and bottom outside


_Pair = tuple[Path, Path]


def read(request: Request) -> Data:
    """All pictures decoded and stretched to a square, the boxes with them."""
    root = layout.folder(request, _EXPECTED)
    train, test = layout.divide(root, _pairs, request)
    side = request.side or SIDE
    marked = [[_objects(picture, xml) for picture, xml in part] for part in (train, test)]
    classes = tuple(sorted({one.name for objects in marked[0] for one in objects}))
    if not classes:
        raise DataError(f"the training pictures of {root} have no object in their XML files")
    first, second = (
        _annotated(pairs, objects, classes, side)
        for pairs, objects in zip((train, test), marked, strict=True)
    )
    return dense.data(request, first, second, Scale.of(first.images), True, classes, side)


def _pairs(root: Path) -> list[_Pair]:
    pictures = next((root / n for n in ("JPEGImages", "images") if (root / n).is_dir()), root)
    notes = root / "Annotations" if (root / "Annotations").is_dir() else pictures
    pairs = [(path, notes / f"{path.stem}.xml") for path in reading.listed(pictures)]
    for picture, xml in pairs:
        if not xml.is_file():
            raise DataError(f"{picture} has no {xml}; write one, without objects if none is there")
    lonely = {path.stem for path in notes.glob("*.xml")} - {path.stem for path, _ in pairs}
    if lonely:
        raise DataError(
            f"{notes / min(lonely)}.xml has no picture in {pictures}; add it or remove the file"
        )
    return pairs


def _objects(picture: Path, xml: Path) -> list[_Object]:
    width, height = reading.sizes([picture])[0]
    try:
        objects = ET.parse(xml).getroot().findall("object")
    except (ET.ParseError, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{xml} cannot be read as XML: {error}") from error
    return [_object(xml, number, element, width, height) for number, element in enumerate(objects)]


def _object(xml: Path, number: int, element: ET.Element, width: int, height: int) -> _Object:
    name = (element.findtext("name") or "").strip()
    box = element.find("bndbox")
    try:
        left, top, right, bottom = (
            float((box.findtext(key) if box is not None else None) or "")
            for key in ("xmin", "ymin", "xmax", "ymax")
        )
    except ValueError:
        raise DataError(
            f"{xml}: object {number} needs a bndbox with xmin, ymin, xmax and ymax as numbers"
        ) from None
    if not name:
        raise DataError(f"{xml}: object {number} has no name")
    # VOC counts pixels from 1 and includes the last; files that count from 0 are about as common
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise DataError(
            f"{xml}: the box of object {number} ({name}), {left:g} {top:g} {right:g} {bottom:g}, "
            f"is empty or outside the picture of {width}×{height}"
        )
    return _Object(name, (max(left - 1, 0), max(top - 1, 0), right, bottom))


def _annotated(
    pairs: list[_Pair], marked: list[list[_Object]], classes: tuple[str, ...], side: int
) -> Annotated:
    numbers = {name: label for label, name in enumerate(classes)}
    boxes = []
    for (_, xml), objects, (width, height) in zip(
        pairs, marked, reading.sizes([path for path, _ in pairs]), strict=True
    ):
        unknown = [one.name for one in objects if one.name not in numbers]
        if unknown:
            raise DataError(
                f"{xml}: the label {unknown[0]!r} is out of range; "
                f"the training classes are {', '.join(classes)}"
            )
        stretch = torch.tensor([side / width, side / height] * 2)
        corners = torch.tensor([one.box for one in objects], dtype=torch.float32).view(-1, 4)
        labels = torch.tensor([numbers[one.name] for one in objects], dtype=torch.int64)
        boxes.append(Boxes(corners * stretch, labels))
    return Annotated(reading.pictures([path for path, _ in pairs], side), boxes)
