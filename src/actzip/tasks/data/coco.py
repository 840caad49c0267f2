"""Pictures with boxes in a COCO JSON file for each split."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from actzip.tasks.data import layout
from actzip.tasks.data.layout import Found
from actzip.tasks.data.problems import Problems
from actzip.tasks.data.scene_file import Item, Object

_ASIDE = ("captions", "keypoints", "stuff", "panoptic", "info")  #: files of COCO without boxes


def find(root: Path, problems: Problems) -> Found[Item] | None:
    """The files by what their names, or the names of their folders, say of the split."""
    parts: dict[str, list[Item]] = {}
    classes: dict[str, None] = {}
    whole: list[Item] = []
    for file in _files(root):
        values = _read(file, problems)
        if values is None:
            continue
        items = _items(root, file, values, problems)
        classes.update(dict.fromkeys(_names(values).values()))
        split = layout.part(file.stem)[0] or layout.part(file.parent.name)[0]
        (whole if split is None else parts.setdefault(split, [])).extend(items)
    if parts.get("train"):
        return layout.chosen(parts, "COCO, a JSON file for each split", tuple(classes))
    everything = whole + [item for items in parts.values() for item in items]
    return Found("COCO, one JSON file", everything, None, tuple(classes)) if everything else None


def _files(root: Path) -> list[Path]:
    places = [root, *layout.folders(root)]
    files = [file for place in places for file in layout.files(place, ".json")]
    return [file for file in files if not any(word in file.stem.lower() for word in _ASIDE)]


def _read(file: Path, problems: Problems) -> dict[str, Any] | None:
    try:
        values = json.loads(file.read_bytes())
    except ValueError as error:
        problems.note(f"{file} cannot be read as JSON: {error}")
        return None
    keys = ("images", "annotations", "categories")
    known = isinstance(values, dict) and all(isinstance(values.get(key), list) for key in keys)
    return values if known else None


def _names(values: dict[str, Any]) -> dict[Any, str]:
    pairs = [(each.get("id"), str(each.get("name"))) for each in values["categories"]]
    return dict(sorted(pairs, key=lambda pair: str(pair[0]).zfill(9)))


def _items(root: Path, file: Path, values: dict[str, Any], problems: Problems) -> list[Item]:
    boxes: dict[Any, list[dict[str, Any]]] = {}
    for one in values["annotations"]:
        if not one.get("iscrowd"):  # a crowd is a region, not an object
            boxes.setdefault(one.get("image_id"), []).append(one)
    places, names = _places(root, file), _names(values)
    items = []
    for image in values["images"]:
        name = str(image.get("file_name", "")).replace("\\", "/")  # it may be Windows'
        alike = (place / each for each in (name, Path(name).name) for place in places if each)
        picture = next((path for path in alike if path.is_file()), None)
        if picture is None:
            problems.note(f"{file}: there is no picture {name}")
            continue
        marked = functools.partial(_objects, file, boxes.get(image.get("id"), []), names)
        items.append(Item(picture, file, marked))
    return items


def _places(root: Path, file: Path) -> list[Path]:
    """Where the pictures of a JSON file may be; folders of its own split go first."""
    split = layout.part(file.stem)[0]
    images = layout.named(root, layout.IMAGES)
    inner = [*layout.folders(root), *(layout.folders(images) if images else [])]
    own = [each for each in inner if split and layout.part(each.name)[0] == split]
    return [file.parent, *own, *([images] if images else []), root, *inner]


def _objects(
    file: Path,
    marked: Sequence[dict[str, Any]],
    names: dict[Any, str],
    width: int,
    height: int,
    problems: Problems,
) -> list[Object]:
    found = []
    for one in marked:
        try:
            left, top, wide, high = (float(value) for value in one["bbox"])
            name = names[one["category_id"]]
        except (KeyError, TypeError, ValueError):
            problems.note(f"{file}: the annotation {one.get('id')} needs a bbox of four numbers "
                          "and a category_id that is there")  # fmt: skip
            continue
        found.append(Object(name, (left, top, left + wide, top + high)))
    return found
