"""How a user's folder is laid out: its splits, its folders by any spelling, what is in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from actzip.tasks.data.contract import DataError, Request
from actzip.tasks.data.problems import Problems
from actzip.tasks.data.split import halves, some

T = TypeVar("T")

TRAIN = ("train", "training")
TEST = ("test", "testing", "val", "valid", "validation", "dev", "eval")
#: folders of pictures; other words beside these are masks, annotations or names of classes
IMAGES = ("images", "image", "imgs", "img", "jpegimages", "pictures", "photos")
#: and of masks and annotations
MASKS = (
    *("masks", "mask", "segmentationclass", "labels", "label", "annotations", "annotation"),
    *("annots", "annot", "segmentation", "segmentations", "groundtruth", "gt"),
)
_DEEP = 3  #: folders that may be wrapped around a data set, as archives do
_LINES = 24  #: of a tree in a message
_BRANCHES = 5  #: of it, one inside the other
_NAMED = 3  #: files of a folder whose names it shows


@dataclass(frozen=True)
class Found(Generic[T]):
    """What a layout holds: `test` is None where it has no split of its own."""

    layout: str  #: in words
    train: list[T]
    test: list[T] | None = None
    classes: tuple[str, ...] = ()  #: in their published order, where there is one


def folders(root: Path) -> list[Path]:
    """The folders in a folder, by name; hidden ones and what macOS leaves are not looked at."""
    return sorted(
        path
        for path in root.iterdir()
        if path.is_dir() and not path.name.startswith((".", "__MACOSX"))
    )


def files(root: Path, *endings: str) -> list[Path]:
    """The files in a folder with one of these endings in any case, by name; no hidden ones."""
    return sorted(
        path
        for path in root.iterdir()
        if path.suffix.lower() in endings and not path.name.startswith(".") and path.is_file()
    )


def text(path: Path) -> str:
    """What a file says: in UTF-8, with or without its mark, else in cp1252."""
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")


def named(root: Path, names: Iterable[str]) -> Path | None:
    """The folder of one of these names, in any case; the first of the names goes first."""
    there = {path.name.lower(): path for path in folders(root)}
    return next((there[name] for name in names if name in there), None)


def years(root: Path, inner: Iterable[str]) -> list[Path]:
    """The folders in a VOCdevkit, one for each year, that hold a folder of one of these names."""
    found = [
        each if named(each, inner) else unwrapped(each)
        for each in folders(root)
        if part(each.name)[0] is None
    ]
    return [each for each in found if part(each.name)[0] is None and named(each, inner)]


def unwrapped(root: Path) -> Path:
    """The folder that holds the data: archives wrap it into folders of their own."""
    for _ in range(_DEEP):
        inner = folders(root)
        files = [p for p in root.iterdir() if p.is_file() and not p.name.startswith(".")]
        if len(inner) != 1 or any(p.suffix.lower() not in _ASIDE for p in files):
            return root
        root = inner[0]
    return root


_ASIDE = ("", ".md", ".txt", ".pdf", ".html", ".url")  #: files that stand beside a data set


def part(name: str) -> tuple[str | None, str]:
    """Which split a folder's or file's name says, "train", "test" or "val", and the rest of it.

    "train2017", "Final_Training", "seg_train", "trainannot" and "val_masks" all say one.
    """
    words = re.findall(r"[a-z]+", name.lower())
    for word in words:
        if word in TRAIN + TEST:
            words.remove(word)
            return _split(word), "".join(words)
    joined = re.fullmatch(r"(train|test|val)(annot|masks?|labels?)", "".join(words))
    return (joined[1], joined[2]) if joined else (None, "".join(words))


def is_part(name: str) -> bool:
    """Whether a folder's name says which part of a set it is: it is the name of no class then."""
    split, rest = part(name)
    return (rest or "images") in IMAGES + MASKS if split else name.lower() in IMAGES + MASKS


def _split(word: str) -> str:
    if word in TRAIN:
        return "train"
    return "test" if word in ("test", "testing") else "val"


def splits(root: Path) -> dict[str, Path]:
    """The folders to train and to test with by what their names say; the shortest name wins."""
    found: dict[str, Path] = {}
    for path in sorted(folders(root), key=lambda path: (len(path.name), path.name)):
        split, _ = part(path.name)
        if split is not None:
            found.setdefault(split, path)
    return found


def chosen(by_split: dict[str, list[T]], layout: str, classes: tuple[str, ...] = ()) -> Found[T]:
    """Train with what says so; test with test if it has anything, else with val."""
    tests = (by_split.get(name) for name in ("test", "val"))
    test = next((found for found in tests if found), None)
    return Found(layout, by_split.get("train") or [], test, classes)


def joined(found: list[Found[T]]) -> Found[T] | None:
    """Several years, or archives, as one set."""
    if not found:
        return None
    many = f"{len(found)} folders, " if len(found) > 1 else ""
    how = dict.fromkeys(one.layout for one in found)
    train = [each for one in found for each in one.train]
    tests = [each for one in found for each in one.test or []]
    return Found(many + "; ".join(how), train, tests or None)


def divide(found: Found[T], request: Request) -> tuple[list[T], list[T]]:
    """What to train and to test with; one piece is split by the seed."""
    train = nonempty(found.train, "training", request.name)
    if found.test is not None:
        test = nonempty(found.test, "test", request.name)
    else:
        kept, held = halves(len(train), request.seed)
        test = nonempty([train[i] for i in held.tolist()], "test", request.name)
        train = [train[i] for i in kept.tolist()]
    return limited(train, request), limited(test, request)


def limited(found: list[T], request: Request) -> list[T]:
    """At most as many as were asked for, chosen by the seed."""
    return [found[i] for i in some(len(found), request.limit, request.seed).tolist()]


def nonempty(
    found: list[T], split: str, where: Path | str, problems: Problems | None = None
) -> list[T]:
    """What was found, if anything was."""
    if not found:
        why = f"; {problems.said()}" if problems is not None and problems.found else ""
        raise DataError(
            f"the {split} split of {where} is empty; it needs at least one example{why}"
        )
    return found


def unknown(path: Path, task: str, expected: str, problems: Problems | None = None) -> DataError:
    """No layout fits: what was found, and what is expected."""
    hint = f"{problems.said()}. " if problems is not None and problems.found else ""
    if path.is_file():
        packed = path.suffix.lower() in _PACKED
        hint = "Unpack it, and give the folder. " if packed else "Give the folder that it is in? "
    return DataError(
        f"{path} is in no layout that {task} reads. {hint}Found:\n{tree(path)}\n"
        f"Expected is one of:\n{expected}\ndocs/data.md shows them all; `actzip data` tries a path"
    )


_PACKED = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar")


def tree(root: Path) -> str:
    """The folders below a path, each with how many files of which ending it holds."""
    if root.is_file():
        return f"  {root.name}, a file of {root.stat().st_size} bytes"
    lines: list[str] = []
    _branch(root, 0, lines)
    if len(lines) > _LINES:
        lines = [*lines[: _LINES - 1], f"  … and {len(lines) - _LINES + 1} folders more"]
    return "\n".join(lines)


def _branch(folder: Path, depth: int, lines: list[str]) -> None:
    held_files = [p for p in folder.iterdir() if p.is_file() and not p.name.startswith(".")]
    if len(held_files) <= _NAMED:
        held = ", ".join(sorted(path.name for path in held_files))
    else:
        counts = Counter(path.suffix.lower() for path in held_files)
        first = {path.suffix.lower(): path.name for path in sorted(held_files, reverse=True)}
        held = ", ".join(
            f"{count} {ending or 'without ending'} ({first[ending]}, …)"
            for ending, count in counts.most_common(4)
        )
    inner = folders(folder)
    name = folder.name or str(folder)
    lines.append(f"  {'  ' * depth}{name}/ {held or ('' if inner else 'empty')}".rstrip())
    if depth < _BRANCHES and len(lines) <= 4 * _LINES:
        for each in inner:
            _branch(each, depth + 1, lines)
