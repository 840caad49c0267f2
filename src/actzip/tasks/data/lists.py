"""Splits that a set was published with as lists of names: train.txt, val.txt, test.txt."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from actzip.tasks.data import layout, reading
from actzip.tasks.data.problems import Problems

_PLACES = ("annotations", "annotation", "splits", "split", "lists", "meta")


@dataclass(frozen=True)
class Published:
    """What is trained and tested with, by the pictures' names without their endings."""

    source: str  #: the lists, for people
    train: list[str]
    test: list[str]


def published(root: Path, kind: str, there: Container[str], problems: Problems) -> Published | None:
    """The lists of ImageSets/`kind`, else of the folder itself or one for annotations.

    Trained with is trainval and tested with test, else train and test, else train and val. Lists
    of which no picture is there (tests are often published without answers) do not count.
    """
    sets = layout.named(root, ("imagesets",))
    folder = None if sets is None else layout.named(sets, (kind.lower(),))
    if folder is not None:
        found = _pair(folder, f"ImageSets/{folder.name}/", there, problems)
        return found or _tests_only(folder, there)
    inner = (layout.named(root, (name,)) for name in _PLACES)
    for place in filter(None, (root, *inner)):
        found = _pair(place, "" if place is root else f"{place.name}/", there, Problems())
        if found is not None:
            return found
    return None


def _pair(folder: Path, where: str, there: Container[str], problems: Problems) -> Published | None:
    files = {path.stem.lower(): path for path in layout.files(folder, ".txt")}
    for first, second in _PAIRS:
        if first not in files or second not in files:
            continue
        both = (files[first], files[second])
        named = [_names(file, there) for file in both]
        train, test = ([name for name in names if name in there] for names in named)
        if not (train and test):
            continue
        for file, names in zip(both, named, strict=True):
            for name in names:
                if name not in there:
                    problems.note(f"{file}: {name} has no picture or no annotation")
        return Published(f"{where}{both[0].name} and {both[1].name}", train, test)
    return None


_PAIRS = (
    *(("trainval", "test"), ("train", "test"), ("train", "val")),
    *(("train", "valid"), ("train", "validation")),
)


def _tests_only(folder: Path, there: Container[str]) -> Published | None:
    """An archive of nothing but tests, as the one of 2007."""
    files = {path.stem.lower(): path for path in layout.files(folder, ".txt")}
    if "test" not in files or files.keys() & {"train", "val", "trainval"}:
        return None
    test = [name for name in _names(files["test"], there) if name in there]
    return Published(f"ImageSets/{folder.name}/test.txt", [], test) if test else None


def _names(file: Path, there: Container[str]) -> list[str]:
    lines = (line.strip() for line in layout.text(file).splitlines())
    return list(dict.fromkeys(_name(line, there) for line in lines if line))


def _name(line: str, there: Container[str]) -> str:
    """The first word of a line, or all of it, without folders and the ending of a picture."""
    for words in (line, line.split()[0]):
        name = words.replace("\\", "/").rpartition("/")[2]
        stem, dot, ending = name.rpartition(".")
        if dot and f".{ending.lower()}" in reading.ENDINGS:
            name = stem
        if name in there:
            break
    return name


def divided(
    found: Iterable[layout.T], names: Iterable[str], lists: Published
) -> tuple[list[layout.T], list[layout.T]]:
    """The examples of these names that are trained and tested with."""
    by_name = dict(zip(names, found, strict=True))
    train, test = ([by_name[name] for name in part] for part in (lists.train, lists.test))
    return train, test
