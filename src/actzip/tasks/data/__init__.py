"""The data of all tasks: built-in names, and the user's own folders and files by their path."""

from __future__ import annotations

from pathlib import Path

from actzip.tasks.data import masks, plain, table, tree, voc
from actzip.tasks.data.builtin import BUILTIN, Builtin
from actzip.tasks.data.contract import Boxes, Data, DataError, Examples, Request

__all__ = ["BUILTIN", "OWN", "Boxes", "Builtin", "Data", "DataError", "Examples", "load"]

#: what reads a user's own data, for each task
OWN = {
    "classify": tree.read,
    "detect": voc.read,
    "segment": masks.read,
    "text": table.read,
    "lm": plain.read,
}


def load(
    name_or_path: str,
    task: str,
    *,
    side: int | None = None,
    length: int | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> Data:
    """The data of a built-in name or of a path, checked and ready to train with.

    `side` is the height and width of pictures, `length` the number of tokens of a text;
    without them the data's own. `limit` is the most examples a split may have; `seed` chooses
    them, and splits data that come in one piece. A name goes before a path: a folder named
    like a built-in is ``./digits``. What is wrong with the data is a DataError.
    """
    request = Request(name_or_path, task, side, length, limit, seed)
    known = BUILTIN.get(name_or_path)
    if known is not None and task in known.tasks:
        return known.open(request)
    if known is None and Path(name_or_path).exists():
        return OWN[task](request)
    names = ", ".join(name for name, one in BUILTIN.items() if task in one.tasks)
    what = f"is for {', '.join(known.tasks)}" if known else "is no built-in name and no path"
    raise DataError(
        f"{name_or_path!r} {what}; built-in for {task}: {names}; or give the path of your own data"
    )
