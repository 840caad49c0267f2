"""A user's pictures for classify: a folder for each class.

``root/train/<class>/*.png`` with ``root/test/…`` (or val), or ``root/<class>/*.png``, which the
seed then splits class by class.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from actzip.tasks.data import layout, reading
from actzip.tasks.data.contract import Data, DataError, Request
from actzip.tasks.data.pictures import Augment, Pictures, Scale
from actzip.tasks.data.split import halves

SIDE = 64  #: of the pictures, unless another is asked for
_EXPECTED = "a folder of pictures for each class, or train and test folders of such"

_Labelled = list[tuple[Path, int]]


def read(request: Request) -> Data:
    """All pictures decoded and stretched to a square; the classes are the folders' names."""
    root = layout.folder(request, _EXPECTED)
    source, other = layout.parts(root)
    classes = tuple(sorted(_folders(source)))
    if len(classes) < 2:
        raise DataError(
            f"{source} has {len(classes)} class folders, at least 2 are needed; "
            f"expected is {_EXPECTED}"
        )
    found = [_labelled(source, label, name) for label, name in enumerate(classes)]
    if other is None:
        train, test = _split(found, request.seed)
    else:
        train, test = [item for own in found for item in own], _tested(other, classes)
    layout.nonempty(test, "test", other or root)
    side = request.side or SIDE
    first, second = (_decoded(layout.limited(part, request), side) for part in (train, test))
    scale, augment = Scale.of(first[0]), Augment(pad=side // 8, flip=True)
    return Data(
        request.name,
        request.task,
        Pictures(*first, scale, side, augment),
        Pictures(*second, scale, side, augment),
        classes,
        channels=3,
        side=side,
    )


def _folders(root: Path) -> set[str]:
    return {p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")}


def _labelled(root: Path, label: int, name: str) -> _Labelled:
    paths = reading.listed(root / name)
    if not paths:
        raise DataError(
            f"the class folder {root / name} has no pictures; "
            f"they may end in {', '.join(sorted(reading.ENDINGS))}"
        )
    return [(path, label) for path in paths]


def _tested(root: Path, classes: tuple[str, ...]) -> _Labelled:
    """Not every class must be tested, but no other may be."""
    found: _Labelled = []
    for name in sorted(_folders(root)):
        if name not in classes:
            raise DataError(
                f"{root / name}: the label {name!r} is out of range; "
                f"the training classes are {', '.join(classes)}"
            )
        found.extend((path, classes.index(name)) for path in reading.listed(root / name))
    return found


def _split(found: list[_Labelled], seed: int) -> tuple[_Labelled, _Labelled]:
    train: _Labelled = []
    test: _Labelled = []
    for own in found:
        kept, held = halves(len(own), seed)
        train.extend(own[i] for i in kept.tolist())
        test.extend(own[i] for i in held.tolist())
    return train, test


def _decoded(part: _Labelled, side: int) -> tuple[Tensor, Tensor]:
    images = reading.pictures([path for path, _ in part], side)
    return images, torch.tensor([label for _, label in part])
