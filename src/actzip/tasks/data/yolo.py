"""Pictures each with a YOLO text file: a line ``class x y width height`` for an object.

Numbers are parts of the picture's size; more than five of a line are the corners of a polygon.
A picture without a file has no object.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from actzip.tasks.data import layout, reading
from actzip.tasks.data.contract import DataError
from actzip.tasks.data.layout import Found
from actzip.tasks.data.lists import divided, published
from actzip.tasks.data.problems import Problems
from actzip.tasks.data.scene_file import Item, Object

_NAMES = ("classes.txt", "obj.names", "_darknet.labels", "labels.txt")
_LABELS = ("labels", "label", "annotations", "annotation")


def find(root: Path, problems: Problems) -> Found[Item] | None:
    """images/train with labels/train, train/images with train/labels, or either without splits."""
    images, labels = layout.named(root, layout.IMAGES), layout.named(root, _LABELS)
    names = _names(root, labels)
    parts: dict[str, list[Item]] = {}
    if images is not None and labels is not None:
        others = layout.splits(labels)
        for split, folder in layout.splits(images).items():
            parts[split] = _items(folder, others.get(split, labels), names)
        whole = _items(images, labels, names)
    else:
        for split, folder in layout.splits(root).items():
            own = layout.named(folder, layout.IMAGES) or folder
            parts[split] = _items(own, layout.named(folder, _LABELS) or own, names)
        whole = _items(root, root, names)
    parts = {split: items for split, items in parts.items() if items}
    if parts.get("train"):
        return layout.chosen(parts, "YOLO, folders for each split", names)
    if not whole:
        return None
    stems = [item.picture.stem for item in whole]
    lists = published(root, "Main", set(stems), problems)
    if lists is None:
        return Found("YOLO, no split of its own", whole, None, names)
    return Found(f"YOLO, split by {lists.source}", *divided(whole, stems, lists), names)


def _items(images: Path, labels: Path, names: tuple[str, ...]) -> list[Item]:
    files = {path.stem: path for path in layout.files(labels, ".txt")}
    pictures = reading.listed(images)
    if not any(picture.stem in files for picture in pictures):
        return []
    return [
        Item(
            picture,
            files.get(picture.stem, labels / f"{picture.stem}.txt"),
            functools.partial(_objects, files.get(picture.stem), names),
        )
        for picture in pictures
    ]


def _objects(
    file: Path | None, names: tuple[str, ...], width: int, height: int, problems: Problems
) -> list[Object]:
    if file is None:
        return []
    try:
        lines = layout.text(file).splitlines()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error}") from error
    found = []
    for number, line in enumerate(filter(str.strip, lines), 1):
        try:
            label, *values = (float(word) for word in line.split())
            box = _box(values)
            if label < 0 or label != int(label) or (names and label >= len(names)):
                raise ValueError(f"there is no class {label:g}")
        except ValueError as error:
            problems.note(f"{file}, line {number}: {error}; a line is: class x y width height")
            continue
        name = names[int(label)] if names else f"class {int(label)}"
        left, top, right, bottom = box
        scaled = (left * width, top * height, right * width, bottom * height)
        found.append(Object(name, scaled))
    return found


def _box(values: list[float]) -> tuple[float, float, float, float]:
    if len(values) in (4, 5):  # the fifth is the confidence of whoever found the box
        x, y, wide, high = values[:4]
        return x - wide / 2, y - high / 2, x + wide / 2, y + high / 2
    if len(values) < 6 or len(values) % 2:
        raise ValueError(f"{len(values) + 1} numbers")
    return min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])


def _names(root: Path, labels: Path | None) -> tuple[str, ...]:
    """The classes by their numbers, from a list of names or from the YAML file beside the data.

    Programs that draw boxes leave the list among the labels.
    """
    inner = [layout.named(each, _LABELS) for each in layout.splits(root).values()]
    deeper = [*layout.splits(labels).values()] if labels is not None else []
    return (
        _listed(root)
        or next(filter(None, map(_yaml_names, layout.files(root, ".yaml", ".yml"))), ())
        or next(filter(None, map(_listed, filter(None, (labels, *deeper, *inner)))), ())
    )


def _listed(place: Path) -> tuple[str, ...]:
    there = {path.name.lower(): path for path in place.iterdir() if path.is_file()}
    file = next((there[name] for name in _NAMES if name in there), None)
    lines = [] if file is None else layout.text(file).splitlines()
    return tuple(line.strip() for line in lines if line.strip())


def _yaml_names(file: Path) -> tuple[str, ...]:
    """``names:`` of a YAML file, in the three ways in which people write a list."""
    text = layout.text(file).replace("\r", "")
    match = re.search(r"^names\s*:[ \t]*(.*(?:\n(?:[ \t]+|-).*)*)", text, re.MULTILINE)
    if match is None:
        return ()
    body = re.sub(r"(^|\s)#.*", "", match[1]).strip()
    if body.startswith(("[", "{")):
        pieces = body.strip("[]{}").replace("\n", " ").split(",")
    else:
        pieces = [line.strip().removeprefix("-") for line in body.splitlines()]
    return tuple(
        re.sub(r"^\d+\s*:", "", piece.strip()).strip().strip("'\"")
        for piece in pieces
        if piece.strip()
    )
