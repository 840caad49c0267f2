"""Pictures each with a Pascal VOC XML file of the same name; one folder or one for each year."""

from __future__ import annotations

import functools
import xml.etree.ElementTree as ET
from pathlib import Path

from actzip.tasks.data import layout, reading
from actzip.tasks.data.contract import DataError
from actzip.tasks.data.layout import Found
from actzip.tasks.data.lists import divided, published
from actzip.tasks.data.problems import Problems
from actzip.tasks.data.scene_file import Item, Object

_NOTES = ("annotations", "annotation", "annots", "xmls", "xml", "labels")


def find(root: Path, problems: Problems) -> Found[Item] | None:
    """The pictures of one year or of several (VOCdevkit), with their published split."""
    years = layout.years(root, ("annotations",))
    found = [one for each in years or [root] if (one := _year(each, problems))]
    return layout.joined(found)


def _year(root: Path, problems: Problems) -> Found[Item] | None:
    """One folder of pictures and XML files, or one for each split."""
    pictures, notes = _places(root)
    aside = Problems()
    whole = _items(pictures, notes, aside)
    if whole:
        names = [item.picture.stem for item in whole]
        lists = published(root, "Main", set(names), problems)
        if lists is None:
            problems.found += aside.found
            return Found("Pascal VOC, no split of its own", whole)
        # pictures that are in no list are not missed
        return Found(f"Pascal VOC, split by {lists.source}", *divided(whole, names, lists))
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


def _places(root: Path) -> tuple[Path, Path]:
    """Where the pictures and where the XML files are, or should be."""
    pictures = layout.named(root, ("jpegimages", *layout.IMAGES)) or root
    notes = layout.named(root, _NOTES) or pictures
    return pictures, layout.named(notes, ("xmls", "xml")) or notes


def _items(pictures: Path, notes: Path, problems: Problems) -> list[Item]:
    files = {path.stem: path for path in layout.files(notes, ".xml")}
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
