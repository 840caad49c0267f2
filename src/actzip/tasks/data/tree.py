"""A user's pictures for classify: a folder for each class.

With or without folders for the splits around them; the seed splits what comes in one piece, class
by class. A class is named by its own folder, also where its pictures lie in folders inside it.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from actzip.tasks.data import layout, reading
from actzip.tasks.data.contract import Data, DataError, Request
from actzip.tasks.data.layout import Found
from actzip.tasks.data.pictures import Augment, Pictures, Scale
from actzip.tasks.data.problems import Problems
from actzip.tasks.data.split import halves

SIDE = 64  #: of the pictures, unless another is asked for
EXPECTED = """\
  <class>/*.jpg, a folder of pictures for each class; at least two classes
  train/<class>/ + test/<class>/ (also Training/, val/, …)
  images/<class>/"""

_Labelled = tuple[Path, str]  #: a picture and its class


def find(root: Path, problems: Problems) -> Found[_Labelled] | None:
    """The pictures with their classes; None where there are no class folders."""
    if not root.is_dir():
        return None
    root = layout.unwrapped(root)
    images = layout.named(root, layout.IMAGES)
    found = _classes(root, problems)
    return _classes(images, problems) if found is None and images is not None else found


def _classes(root: Path, problems: Problems) -> Found[_Labelled] | None:
    splits = layout.splits(root)
    parts = {name: _labelled(folder) for name, folder in splits.items()}
    parts = {name: found for name, found in parts.items() if found}
    if "train" in parts:
        found = layout.chosen(parts, "class folders for each split")
    else:
        found = Found("class folders, no split of their own", _labelled(root))
    names = {name for _, name in found.train}
    if len(names) < 2 or all(layout.is_part(name) for name in names):
        return None
    _note_empty(splits["train"] if "train" in parts else root, problems)
    return found


def _labelled(root: Path) -> list[_Labelled]:
    root = layout.unwrapped(root)  # seg_train/seg_train/<class>
    return [(path, each.name) for each in layout.folders(root) for path in _within(each)]


def _within(folder: Path) -> list[Path]:
    """The pictures of a class: in its folder, or in folders inside it."""
    direct = reading.listed(folder)
    return direct or [path for each in layout.folders(folder) for path in reading.listed(each)]


def _note_empty(root: Path, problems: Problems) -> None:
    for each in layout.folders(layout.unwrapped(root)):
        if not _within(each):
            problems.note(f"the class folder {each} has no pictures")


def read(request: Request) -> Data:
    """All pictures decoded and stretched to a square; the classes are the folders' names."""
    root, problems = Path(request.name), Problems()
    found = find(root, problems)
    if found is None:
        raise layout.unknown(root, request.task, EXPECTED, problems)
    if found.test is None:
        train, test = _split(found.train, request.seed)
    else:
        train, test = found.train, found.test
    classes = tuple(sorted({name for _, name in train}))
    for path, name in test:
        if name not in classes:
            problems.note(f"{path}: no training picture is of the class {name!r}")
    test = [each for each in test if each[1] in classes]
    side = request.side or SIDE
    parts = []
    for split, part in (("training", train), ("test", test)):
        layout.nonempty(part, split, root, problems)
        parts.append(_decoded(layout.limited(part, request), classes, side, problems))
        layout.nonempty(list(parts[-1][1]), split, root, problems)
    scale, augment = Scale.of(parts[0][0]), Augment(pad=side // 8, flip=True)
    return Data(
        request.name,
        request.task,
        Pictures(*parts[0], scale, side, augment),
        Pictures(*parts[1], scale, side, augment),
        classes,
        channels=3,
        side=side,
        layout=found.layout,
        problems=problems.end(request.name, request.strict),
    )


def _split(found: list[_Labelled], seed: int) -> tuple[list[_Labelled], list[_Labelled]]:
    train: list[_Labelled] = []
    test: list[_Labelled] = []
    for name in sorted({name for _, name in found}):
        own = [each for each in found if each[1] == name]
        kept, held = halves(len(own), seed)
        train.extend(own[i] for i in kept.tolist())
        test.extend(own[i] for i in held.tolist())
    return train, test


def _decoded(
    part: list[_Labelled], classes: tuple[str, ...], side: int, problems: Problems
) -> tuple[Tensor, Tensor]:
    images = reading.pictures([path for path, _ in part], side, problems)
    pairs = zip(images, part, strict=True)
    kept = [(image, name) for image, (_, name) in pairs if image is not None]
    if not kept:
        raise DataError(f"no picture can be read; {problems.said()}")
    labels = torch.tensor([classes.index(name) for _, name in kept])
    return torch.stack([image for image, _ in kept]), labels
