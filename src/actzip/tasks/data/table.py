"""A user's texts for text: a CSV file with the columns text and label.

One file, which the seed splits, or a folder with train.csv and test.csv (or val.csv). Labels may
be any words or numbers.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import torch

from actzip.tasks.data import layout, words
from actzip.tasks.data.contract import Data, DataError, Request
from actzip.tasks.data.split import halves

_COLUMNS = ("text", "label")

_Row = tuple[str, str]


def read(request: Request) -> Data:
    """All texts; the training texts decide the classes and the vocabulary."""
    path = Path(request.name)
    train_file, test_file = _files(path)
    train = layout.nonempty(_rows(train_file), "training", train_file)
    if test_file is None:
        kept, held = halves(len(train), request.seed)
        layout.nonempty(held.tolist(), "test", path)
        rows = train
        train = [rows[i] for i in kept.tolist()]
        test = [rows[i] for i in held.tolist()]
    else:
        test = layout.nonempty(_rows(test_file), "test", test_file)
    train, test = layout.limited(train, request), layout.limited(test, request)
    classes = tuple(sorted({label for _, label in train}))
    if len(classes) < 2:
        raise DataError(f"the training texts of {path} all have the label {classes[0]!r}")
    unknown = sorted({label for _, label in test} - set(classes))
    if unknown:
        raise DataError(
            f"{test_file or path}: the label {unknown[0]!r} of a test text is out of range; "
            f"the training labels are {', '.join(classes)}"
        )
    both = [*train, *test]
    corpus = words.Corpus.of((text for text, _ in both), (classes.index(one) for _, one in both))
    if not len(corpus.words):
        raise DataError(f"the texts of {path} hold no word")
    numbers = torch.arange(len(both))
    return words.data(request, corpus, numbers[: len(train)], numbers[len(train) :], classes)


def _files(path: Path) -> tuple[Path, Path | None]:
    if path.is_file():
        return path, None
    train = path / f"{layout.TRAIN}.csv"
    for name in layout.TEST:
        if train.is_file() and (path / f"{name}.csv").is_file():
            return train, path / f"{name}.csv"
    raise DataError(
        f"{path} is no file and no folder with train.csv and test.csv; "
        f"data for text are CSV files with the columns {' and '.join(_COLUMNS)}"
    )


def _rows(path: Path) -> list[_Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _parsed(path, csv.reader(file, strict=True))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8: {error}") from error


def _parsed(path: Path, reader: Any) -> list[_Row]:
    rows: list[_Row] = []
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        if not set(_COLUMNS) <= set(header):
            raise DataError(
                f"{path} needs the columns {' and '.join(_COLUMNS)} in its first line, "
                f"got {', '.join(header) or 'nothing'}"
            )
        places = [header.index(name) for name in _COLUMNS]
        for row in filter(None, reader):
            found = [row[place].strip() if place < len(row) else "" for place in places]
            if not all(found):
                raise DataError(f"{path}, line {reader.line_num}: a text or a label is missing")
            rows.append((found[0], found[1]))
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}; is it a CSV file?") from error
    return rows
