"""A user's pictures for segment: ``images`` and ``masks`` folders with files of the same names.

A mask holds a class number per pixel, 0 the background and 255 what shall not count. Names of
the classes, background first, may be given in ``classes.txt``, one per line.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from actzip.tasks.data import dense, layout, reading
from actzip.tasks.data.contract import IGNORE, Data, DataError, Request
from actzip.tasks.data.dense import Scene
from actzip.tasks.data.pictures import Scale

SIDE = 128  #: of the pictures, unless another is asked for
_VOID = 255  #: the mask value that does not count
_EXPECTED = "a folder images and a folder masks with files of the same names"

_Pair = tuple[Path, Path]


@dataclass(frozen=True, eq=False)
class Masked:
    """Pictures of one size with a label per pixel, as bytes."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Scene:
        labels = self.labels[index].long()
        return Scene(self.images[index], labels=labels.masked_fill_(labels == _VOID, IGNORE))


def read(request: Request) -> Data:
    """All pictures and masks decoded and stretched to a square."""
    root = layout.folder(request, _EXPECTED)
    pairs = layout.divide(root, _pairs, request)
    side = request.side or SIDE
    train, test = (_masked(part, side) for part in pairs)
    classes = _classes(root, train.labels)
    for part, masked in zip(pairs, (train, test), strict=True):
        _check(part, masked.labels, len(classes))
    return dense.data(request, train, test, Scale.of(train.images), True, classes, side)


def _pairs(root: Path) -> list[_Pair]:
    images, masks = root / "images", root / "masks"
    for folder in (images, masks):
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}; data for segment are {_EXPECTED}")
    by_name = {path.stem: path for path in reading.listed(masks)}
    pairs = []
    for picture in reading.listed(images):
        if picture.stem not in by_name:
            raise DataError(f"{picture} has no mask of the same name in {masks}")
        pairs.append((picture, by_name[picture.stem]))
    return pairs


def _masked(pairs: list[_Pair], side: int) -> Masked:
    pictures, masks = [p for p, _ in pairs], [m for _, m in pairs]
    for (picture, mask), own, other in zip(
        pairs, reading.sizes(pictures), reading.sizes(masks), strict=True
    ):
        if own != other:
            raise DataError(
                f"{mask} has {other[0]}×{other[1]} pixels, but its picture {picture.name} "
                f"{own[0]}×{own[1]}; both must be of one size"
            )
    return Masked(reading.pictures(pictures, side), reading.masks(masks, side))


def _classes(root: Path, labels: Tensor) -> tuple[str, ...]:
    """From classes.txt, else a number for each label up to the largest of the training masks."""
    named = root / "classes.txt"
    if named.is_file():
        names = tuple(line.strip() for line in named.read_text("utf-8").splitlines())
        names = tuple(name for name in names if name)
    else:
        most = int(labels.masked_fill(labels == _VOID, 0).max())
        names = ("background", *(f"class {number}" for number in range(1, most + 1)))
    if len(names) < 2:
        raise DataError(
            f"{root} has no class beside the background; a mask holds a class number per pixel "
            "(1, 2, …) and 255 means that a pixel does not count"
        )
    return names


def _check(pairs: list[_Pair], labels: Tensor, classes: int) -> None:
    wrong = ((labels >= classes) & (labels != _VOID)).flatten(1)
    if bool(wrong.any()):
        which = int(wrong.any(1).int().argmax())
        value = int(labels[which].flatten()[wrong[which]][0])
        raise DataError(
            f"{pairs[which][1]}: the label {value} is out of range; "
            f"there are {classes} classes, so labels go from 0 to {classes - 1}"
        )
