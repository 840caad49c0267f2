"""A user's texts for text: tables with a column of texts and one of labels.

One file, which the seed splits, or a folder with a file for each split. Labels may be any words or
numbers; which columns are meant is said by option, or guessed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from actzip.tasks.data import columns, layout, pieces
from actzip.tasks.data.columns import Table
from actzip.tasks.data.contract import Data, DataError, Request
from actzip.tasks.data.layout import Found
from actzip.tasks.data.problems import Problems
from actzip.tasks.data.table_file import ENDINGS, is_saved, load, saved

EXPECTED = """\
  a file .csv, .tsv or .parquet with a column of texts and one of labels, with or without header
  a folder with train.csv and test.csv (or val; .tsv and .parquet as well)
  a folder that `datasets` saved"""


def find(path: Path) -> Found[Table] | None:
    """The tables to train and to test with; None where there are none."""
    if path.is_file():
        return Found(path.suffix.lower().lstrip("."), [load(path)]) if _is_table(path) else None
    root = layout.unwrapped(path) if path.is_dir() else path
    if is_saved(root):
        return layout.chosen(saved(root), "a folder that datasets saved")
    files = [each for each in sorted(root.iterdir()) if each.is_file() and _is_table(each)]
    parts: dict[str, list[Path]] = {}
    for file in files:
        split, _ = layout.part(file.stem)
        if split is not None:
            parts.setdefault(split, []).append(file)
    if parts.get("train"):
        tables = {name: [load(file) for file in own] for name, own in parts.items()}
        return layout.chosen(tables, "a table for each split")
    return Found(f"one table, {files[0].name}", [load(files[0])]) if len(files) == 1 else None


def _is_table(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS


def read(request: Request) -> Data:
    """All texts; the training texts decide the classes and the vocabulary."""
    path, problems = Path(request.name), Problems()
    found = find(path)
    if found is None:
        raise layout.unknown(path, request.task, EXPECTED)
    chosen = columns.choose(found.train[0], request)
    train = [row for table in found.train for row in columns.rows(table, chosen, problems)]
    if found.test is None:
        train, test = layout.divide(Found("", train), request)
    else:
        test = [row for table in found.test for row in columns.rows(table, chosen, problems)]
        train, test = layout.divide(Found("", train, test), request)
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
    return replace(made, layout=f"{found.layout}; {chosen}", problems=wrong)


def _order(label: str) -> tuple[float, str]:
    """Numbers by their value, words after them."""
    try:
        return float(label), label
    except ValueError:
        return float("inf"), label
