"""Pictures each with a Pascal VOC XML file of the same name, and the splits of ImageSets."""

from __future__ import annotations

import functools
import xml.etree.ElementTree as ET
from pathlib import Path

from actzip.tasks.data import layout, reading
from actzip.tasks.data.contract import DataError
from actzip.tasks.data.layout import Found
from actzip.tasks.data.problems import Problems
from actzip.tasks.data.scene_file import Item, Object

_NOTES = ("annotations", "annotation", "annots", "xmls", "xml", "labels")


def find(root: Path, problems: Problems) -> Found[Item] | None:
    """The pictures of one year or of several (VOCdevkit), with their published split."""
    years = [each for each in layout.folders(root) if layout.named(each, ("annotations",))]
    years = [each for each in years if layout.part(each.name)[0] is None]
    found = [one for each in years or [root] if (one := _year(each, problems))]
    if not found:
        return None
    tests = [item for one in found for item in one.test or []]
    train = [item for one in found for item in one.train]
    return Found(found[0].layout, train, tests or None)


def _year(root: Path, problems: Problems) -> Found[Item] | None:
    """One folder of pictures and XML files, or one for each split."""
    pictures, notes = _places(root)
    aside = Problems()
    whole = _items(pictures, notes, aside)
    if whole:
        by_name = {item.picture.stem: item for item in whole}
        lists = published(root, "Main", set(by_name), problems)
        if lists is None:
            problems.found += aside.found
            return Found("Pascal VOC, no split of its own", whole)
        name, train, test = lists  # pictures that are in no list are not missed
        train_items, test_items = ([by_name[stem] for stem in part] for part in (train, test))
        return Found(f"Pascal VOC, split by {name}", train_items, test_items)
    parts = {}
    for split, folder in layout.splits(root).items():
        parts[split] = _items(*_places(folder), problems)
    others = layout.splits(notes) if pictures != root else {}
    for split, folder in layout.splits(pictures).items():
        if split in others:
            parts[split] = _items(folder, others[split], problems)
    parts = {name: items for name, items in parts.items() if items}
    if not parts.get("train"):
        return None
    return layout.chosen(parts, "Pascal VOC files, a folder for each split")


def published(
    root: Path, kind: str, there: set[str], problems: Problems
) -> tuple[str, list[str], list[str]] | None:
    """Names to train and to test with by ImageSets: trainval and test, else train and val.

    Lists of which no picture is there (tests are often published without answers) do not count.
    """
    sets = layout.named(root, ("imagesets",))
    folder = None if sets is None else layout.named(sets, (kind.lower(),))
    if folder is None:
        return None
    for first, second in (("trainval", "test"), ("train", "test"), ("train", "val")):
        files = (folder / f"{first}.txt", folder / f"{second}.txt")
        if all(file.is_file() for file in files):
            named = [_names(file) for file in files]
            train, test = ([name for name in names if name in there] for names in named)
            if train and test:
                for file, names in zip(files, named, strict=True):
                    for name in names:
                        if name not in there:
                            problems.note(f"{file}: {name} has no picture or no annotation")
                return f"ImageSets/{kind}/{first}.txt and {second}.txt", train, test
    return None


def _names(file: Path) -> list[str]:
    lines = file.read_text("utf-8", "replace").splitlines()
    return list(dict.fromkeys(line.split()[0] for line in lines if line.split()))


def _places(root: Path) -> tuple[Path, Path]:
    """Where the pictures and where the XML files are, or should be."""
    pictures = layout.named(root, ("jpegimages", *layout.IMAGES)) or root
    notes = layout.named(root, _NOTES) or pictures
    return pictures, layout.named(notes, ("xmls", "xml")) or notes


def _items(pictures: Path, notes: Path, problems: Problems) -> list[Item]:
    files = {path.stem: path for path in sorted(notes.glob("*.xml"))}
    if not files:
        return []
    items = []
    for picture in reading.listed(pictures):
        xml = files.pop(picture.stem, None)
        if xml is None:
            problems.note(f"{picture} has no XML file in {notes}")
        else:
            items.append(Item(picture, xml, functools.partial(_objects, xml)))
    for xml in files.values():
        problems.note(f"{xml} has no picture in {pictures}")
    return items


def _objects(xml: Path, width: int, height: int, problems: Problems) -> list[Object]:
    try:
        elements = ET.parse(xml).getroot().findall("object")
    except (ET.ParseError, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{xml} cannot be read as XML: {error}") from error
    found = (_object(xml, number, each, problems) for number, each in enumerate(elements))
    return [one for one in found if one is not None]


def _object(xml: Path, number: int, element: ET.Element, problems: Problems) -> Object | None:
    name = (element.findtext("name") or "").strip()
    box = element.find("bndbox")
    try:
        left, top, right, bottom = (
            float((box.findtext(key) if box is not None else None) or "")
            for key in ("xmin", "ymin", "xmax", "ymax")
        )
    except ValueError:
        problems.note(f"{xml}: object {number} needs xmin, ymin, xmax and ymax as numbers")
        return None
    if not name:
        problems.note(f"{xml}: object {number} has no name")
        return None
    # VOC counts pixels from 1 and includes the last; files that count from 0 are about as common
    return Object(name, (left - 1, top - 1, right, bottom))
