"""Tables out of files: CSV in the dialects that people publish, Parquet, folders of datasets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from actzip.tasks.data.columns import Table
from actzip.tasks.data.contract import DataError
from actzip.tasks.data.layout import part

ENDINGS = (".csv", ".tsv", ".tab", ".parquet")
PLAIN = ("", ".txt", ".data")  #: files that may hold a table as well
_DELIMITERS = (",", ";", "\t", "|")
_SAMPLE = 50  #: lines that decide the delimiter
_FIELD = 1 << 24  #: characters of a text


def load(path: Path) -> Table:
    """The table in a file."""
    if path.suffix.lower() == ".parquet":
        return _parquet(path)
    rows = _parsed(path, _decoded(path))
    if not rows:
        raise DataError(f"{path} is empty; a table has a line for each text")
    return Table(path, rows)


def _decoded(path: Path) -> str:
    """UTF-8 or UTF-16 with its mark; what is neither is cp1252, as older programs write it."""
    raw = path.read_bytes()
    if b"\0" in raw[:4096] and not raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path} is no text: it holds zero bytes; is it a CSV file?")
    for encoding in ("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", "cp1252"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return raw.decode("latin-1")


def _parsed(path: Path, text: str) -> list[list[str]]:
    lines = text.splitlines()
    delimiter = _delimiter(path, lines[:_SAMPLE])
    before = csv.field_size_limit(_FIELD)
    try:
        rows = _rows(text, delimiter, quoted=True)
        # in tables that do not quote, one stray quote swallows the lines up to the next one
        if delimiter == "\t" and len(rows) < sum(map(bool, map(str.strip, lines))):
            other = _rows(text, delimiter, quoted=False)
            rows = other if _even(other) >= _even(rows) else rows
    except csv.Error as error:
        raise DataError(f"{path}: {error}; is it a CSV file?") from error
    finally:
        csv.field_size_limit(before)
    return rows


def _rows(text: str, delimiter: str, quoted: bool) -> list[list[str]]:
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
    )
    return [row for row in reader if any(cell.strip() for cell in row)]


def _even(rows: list[list[str]]) -> float:
    """The share of rows that have as many cells as most."""
    widths = [len(row) for row in rows]
    return max(map(widths.count, set(widths)), default=0) / max(1, len(widths))


def _delimiter(path: Path, lines: list[str]) -> str:
    """The one that cuts the first lines into the same number of columns most often."""
    own = "\t" if path.suffix.lower() in (".tsv", ".tab") else ","
    best, most = own, 0.0
    for delimiter in (own, *(each for each in _DELIMITERS if each != own)):
        try:
            rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
        except csv.Error:
            continue
        widths = [len(row) for row in rows]
        wide = max(set(widths), key=widths.count, default=1)
        share = widths.count(wide) / len(widths) if wide > 1 else 0.0
        cells = [cell for row in rows for cell in row[1:]]
        if sum(cell.startswith(" ") for cell in cells) > len(cells) / 2:
            share /= 2  # it looks like the comma of a sentence
        if share > most + 0.1:  # the usual one is left for a clearly better one only
            best, most = delimiter, share
    return best


def _parquet(path: Path) -> Table:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            f"{path} is read with pyarrow, which is not installed; pip install pyarrow"
        ) from error
    try:
        found = parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from error
    return _table(path, found.column_names, found.to_pylist())


def _table(path: Path, names: list[str], records: Iterable[dict[str, Any]]) -> Table:
    rows = [["" if each[name] is None else str(each[name]) for name in names] for each in records]
    return Table(path, [names, *rows], header=True)


def is_saved(root: Path) -> bool:
    """Whether `datasets` wrote this folder with save_to_disk."""
    return any((root / name).is_file() for name in ("dataset_dict.json", "state.json"))


def saved(root: Path) -> dict[str, list[Table]]:
    """The tables of such a folder by split."""
    try:
        import datasets
    except ImportError as error:
        raise ImportError(
            f"{root} is read with datasets, which is not installed; pip install datasets"
        ) from error
    found = datasets.load_from_disk(str(root))
    parts = found.items() if isinstance(found, dict) else [("train", found)]
    return {
        part(str(name))[0] or str(name): [_table(root, list(one.column_names), _records(one))]
        for name, one in parts
    }


def _records(dataset: Any) -> Iterable[dict[str, Any]]:
    """Rows in which classes have their names."""
    names = {k: f.names for k, f in dataset.features.items() if hasattr(f, "names")}
    for row in dataset:
        for key, known in names.items():
            if row[key] is not None:  # -1: not known
                row[key] = known[row[key]] if row[key] >= 0 else None
        yield row
