"""The data of all tasks: built-in names, and the user's own folders and files by their path."""

from __future__ import annotations

from pathlib import Path

from actzip.tasks.data import installed, layout, marked, masks, plain, table, tree
from actzip.tasks.data.builtin import BUILTIN, Builtin, published
from actzip.tasks.data.contract import WORDS, Boxes, Data, DataError, Examples, Request
from actzip.tasks.data.problems import DataWarning, Problems

__all__ = [
    "BUILTIN",
    "OWN",
    "Boxes",
    "Builtin",
    "Data",
    "DataError",
    "DataWarning",
    "Examples",
    "load",
    "task_of",
]

#: what reads a user's own data, for each task
OWN = {
    "classify": tree.read,
    "detect": marked.read,
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
    void: int | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    strict: bool = False,
    tokens: str = WORDS,
) -> Data:
    """The data of a built-in name or of a path, checked and ready to train with.

    `side` is the height and width of pictures, `length` the number of tokens of a text;
    without them the data's own. `limit` is the most examples a split may have; `seed` chooses
    them, and splits data that come in one piece. A name goes before a path: a folder named
    like a built-in is ``./digits``. Data that cannot be read at all are a DataError; single
    examples that cannot are left out with a DataWarning, `strict` refuses them.

    `void` is the value of a mask's pixels that do not count, 255 when none is given;
    `text_column` and `label_column` name the columns of a table. `tokens` is what texts are cut
    into: words, or the pieces of the pretrained model that it names.
    """
    request = Request(
        name_or_path,
        task,
        side,
        length,
        limit,
        seed,
        void,
        text_column,
        label_column,
        strict,
        tokens,
    )
    known = BUILTIN.get(name_or_path)
    if known is not None and task in known.tasks:
        return known.open(request)
    if known is None and name_or_path and Path(name_or_path).exists():
        found = published(request, Path(name_or_path)) if task == "classify" else None
        return found or OWN[task](request)
    names = ", ".join(name for name, one in BUILTIN.items() if task in one.tasks)
    what = f"is for {', '.join(known.tasks)}" if known else "is no built-in name and no path"
    raise DataError(
        f"{name_or_path!r} {what}; built-in for {task}: {names}; or give the path of your own data"
    )


def task_of(name_or_path: str) -> str:
    """The one task that a built-in name or a user's own data are for; a DataError if none is."""
    known, path = BUILTIN.get(name_or_path), Path(name_or_path)
    if known is not None:
        fits = list(known.tasks)
    elif path.is_file():
        fits = (
            ["lm"] if path.suffix.lower() == ".txt" else ["text"] * (table.find(path) is not None)
        )
    elif name_or_path and path.is_dir():
        fits = [task for task, find in _DENSE.items() if find(path, Problems())]
        if not fits:
            pictures = installed.holds(path) or tree.find(path, Problems()) is not None
            fits = ["classify"] * pictures
        if not fits:
            fits = ["text"] * (table.find(path) is not None)
    else:
        names = ", ".join(BUILTIN)
        raise DataError(f"{name_or_path!r} is no path and no built-in name; those are {names}")
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise DataError(f"{name_or_path} fits {' and '.join(fits)}; say which with --task")
    expected = "\n".join(f" {task}:\n{text}" for task, text in _EXPECTED.items())
    raise layout.unknown(path, "any task", expected)


_DENSE = {"detect": marked.find, "segment": masks.find}
_EXPECTED = {
    "classify": tree.EXPECTED,
    "detect": marked.EXPECTED,
    "segment": masks.EXPECTED,
    "text": table.EXPECTED,
    "lm": "  one plain text file, .txt",
}
