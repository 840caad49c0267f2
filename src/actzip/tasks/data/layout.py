"""How a user's folder is laid out: with a split of its own, or in one piece."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from actzip.tasks.data.contract import DataError, Request
from actzip.tasks.data.split import halves, some

T = TypeVar("T")

TRAIN = "train"
TEST = ("test", "val", "valid", "validation")


def folder(request: Request, expected: str) -> Path:
    """The path that was asked for, if it is a folder; `expected` tells what it should hold."""
    path = Path(request.name)
    if not path.is_dir():
        what = "is a file" if path.exists() else "is not there"
        raise DataError(f"{path} {what}; data for {request.task} are a folder with {expected}")
    return path


def parts(root: Path) -> tuple[Path, Path | None]:
    """The folders to train and to test with; (root, None) where there is no such split."""
    train = root / TRAIN
    if not train.is_dir():
        return root, None
    for name in TEST:
        if (root / name).is_dir():
            return train, root / name
    raise DataError(
        f"{root} has a folder {TRAIN}, but none to test with; it may be named {', '.join(TEST)}"
    )


def divide(
    root: Path, find: Callable[[Path], list[T]], request: Request
) -> tuple[list[T], list[T]]:
    """What `find` finds to train and to test with; one piece is split by the seed."""
    source, other = parts(root)
    train = nonempty(find(source), "training", source)
    if other is not None:
        test = nonempty(find(other), "test", other)
    else:
        kept, held = halves(len(train), request.seed)
        test = nonempty([train[i] for i in held.tolist()], "test", root)
        train = [train[i] for i in kept.tolist()]
    return limited(train, request), limited(test, request)


def limited(found: list[T], request: Request) -> list[T]:
    """At most as many as were asked for, chosen by the seed."""
    return [found[i] for i in some(len(found), request.limit, request.seed).tolist()]


def nonempty(found: list[T], split: str, where: Path) -> list[T]:
    """What was found, if anything was."""
    if not found:
        raise DataError(f"the {split} split of {where} is empty; it needs at least one example")
    return found
