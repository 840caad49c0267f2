"""A user's texts for text: tables with a column of texts and one of labels.

One file, which the seed splits, or a folder with a file for each split. Labels may be any words or
numbers; which columns are meant is said by option, or guessed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from actzip.tasks.data import columns, layout, pieces
from actzip.tasks.data.columns import Columns, Table
from actzip.tasks.data.contract import Data, DataError, Request
from actzip.tasks.data.layout import Found
from actzip.tasks.data.problems import Problems
from actzip.tasks.data.table_file import ENDINGS, PLAIN, is_saved, load, saved

EXPECTED = """\
  a file .csv, .tsv or .parquet with a column of texts and one of labels, with or without header
  a folder with train.csv and test.csv (or val; .tsv and .parquet as well)
  the same in files .txt or without an ending, with --task text
  a folder that `datasets` saved"""

_Labelled = tuple[str, str]  #: a text and its label


def find(path: Path, plain: bool = False) -> tuple[str, dict[str, list[Table]]] | None:
    """How the tables are laid out, and those of each split; None where there are none.

    Files without an ending that says so are tables only where they are said to be: `plain`.
    """
    if path.is_file():
        kind = path.suffix.lower()
        known = kind in ENDINGS or (plain and kind in PLAIN)
        return (kind.lstrip(".") or "a table", {"train": [load(path)]}) if known else None
    root = layout.unwrapped(path) if path.is_dir() else path
    if is_saved(root):
        return "a folder that datasets saved", saved(root)
    files = layout.files(root, *ENDINGS)
    if plain and not files:
        files = layout.files(root, *PLAIN)
    parts: dict[str, list[Path]] = {}
    for file in files:
        split, _ = layout.part(file.stem)
        if split is not None:
            parts.setdefault(split, []).append(file)
    if parts.get("train"):
        tables = {name: [load(file) for file in own] for name, own in parts.items()}
        return "a table for each split", tables
    if len(files) == 1:
        return f"one table, {files[0].name}", {"train": [load(files[0])]}
    return None


def read(request: Request) -> Data:
    """All texts; the training texts decide the classes and the vocabulary."""
    path, problems = Path(request.name), Problems()
    found = find(path, plain=True)
    if found is None:
        raise layout.unknown(path, request.task, EXPECTED)
    how, tables = found
    layout.nonempty(tables.get("train", []), "training", path)
    chosen = columns.choose(tables["train"][0], request)
    rows = _rows(tables["train"], chosen, problems)
    tests, remark = _tests(tables, chosen, {label for _, label in rows}, problems)
    train, test = layout.divide(Found(how, rows, tests), request)
    classes = tuple(sorted({label for _, label in train}, key=_order))
    if len(classes) < 2:
        raise DataError(f"the training texts of {path} all have the label {classes[0]!r}")
    for _, label in test:
        if label not in classes:
            problems.note(f"no training text has the label {label!r} of a test text")
    test = layout.nonempty([row for row in test if row[1] in classes], "test", path, problems)
    both = [*train, *test]
    labels = (classes.index(one) for _, one in both)
    corpus = pieces.corpus(request.tokens, (text for text, _ in both), labels)
    if not len(corpus.words):
        raise DataError(f"the texts of {path} hold no word")
    numbers = torch.arange(len(both))
    made = pieces.data(request, corpus, numbers[: len(train)], numbers[len(train) :], classes)
    wrong = problems.end(request.name, request.strict)
    return replace(made, layout=f"{how}; {chosen}{remark}", problems=wrong)


def _tests(
    tables: dict[str, list[Table]], chosen: Columns, labels: set[str], problems: Problems
) -> tuple[list[_Labelled] | None, str]:
    """The first split with answers, for tests are often published without; what to say of it."""
    remark = ""
    for name in ("test", "val"):
        aside = Problems()
        found = _rows(tables.get(name, []), chosen, aside)
        if any(label in labels for _, label in found):
            problems.found += aside.found
            return found, remark
        if name in tables:
            remark += f"; the {name} split has no labels of these and does not count"
    return None, remark


def _rows(tables: list[Table], chosen: Columns, problems: Problems) -> list[_Labelled]:
    """The texts of all tables that have both columns; tests are published without answers."""
    found = []
    for table in tables:
        own = columns.matched(table, chosen)
        if own is None:
            wanted = " and ".join(repr(name) for name in chosen.names)
            problems.note(f"{table.path} is left out: it has not both columns, {wanted}")
        else:
            found += columns.rows(table, own, problems)
    return found


def _order(label: str) -> tuple[float, str]:
    """Numbers by their value, words after them."""
    try:
        return float(label), label
    except ValueError:
        return float("inf"), label
