"""Which columns of a table are the texts and the labels: said by option, or guessed."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

from actzip.tasks.data.contract import DataError, Request
from actzip.tasks.data.problems import Problems

_TEXTS = (
    *("text", "sentence", "review", "reviewtext", "content", "comment", "message", "tweet", "sms"),
    *("body", "description", "utterance", "question", "headline", "title"),
)
_LABELS = (
    *("label", "labels", "sentiment", "class", "category", "target", "polarity", "intent"),
    *("topic", "stars", "rating", "overall", "score", "tag", "y"),
)
_SAMPLE = 1000  #: rows that a guess looks at
_CLASSES = 200  #: a column with more different values holds no labels


@dataclass(frozen=True)
class Table:
    """Rows of cells; whether the first is a header is not always known."""

    path: Path
    rows: list[list[str]]
    header: bool | None = None


@dataclass(frozen=True)
class Columns:
    """Where texts and labels are; the first row may be a header."""

    text: int
    label: int
    header: tuple[str, ...] | None

    @property
    def names(self) -> tuple[str, ...]:
        """Of both columns, where there are names."""
        return () if self.header is None else (self.header[self.text], self.header[self.label])

    def __str__(self) -> str:
        if self.header is None:
            return f"no header, texts in column {self.text + 1}, labels in {self.label + 1}"
        return f"texts in {self.header[self.text]!r}, labels in {self.header[self.label]!r}"


def choose(table: Table, request: Request) -> Columns:
    """The columns that were asked for, else those that look like texts and labels."""
    first = _first(table)
    sample = [row for row in table.rows[1 : _SAMPLE + 1] if len(row) == len(first)]
    text = _asked(request.text_column, first, table, "--text-column")
    label = _asked(request.label_column, first, table, "--label-column")
    named = text[1] or label[1] or _known(first)
    text_at = text[0] if text[0] is not None else _place(first, _TEXTS)
    label_at = label[0] if label[0] is not None else _place(first, _LABELS, text_at)
    if text_at is None:
        text_at = _longest(sample, label_at, len(first))
    if label_at is None:
        label_at = _fewest(sample, text_at, len(first))
    if text_at is None or label_at is None or text_at == label_at:
        raise DataError(
            f"{table.path}: which columns hold the texts and the labels cannot be told from "
            f"{', '.join(first)[:200]!r}; name them with --text-column and --label-column, or put "
            "texts and labels into one table if they are in two"
        )
    header = table.header if table.header is not None else named or _looks(first, sample, label_at)
    return Columns(text_at, label_at, tuple(first) if header else None)


def matched(table: Table, chosen: Columns) -> Columns | None:
    """The same columns in another table, by their names where there are any; None if not there."""
    if chosen.header is None:
        return chosen
    first = _first(table)
    names = [_plain(name) for name in first]
    wanted = [_plain(chosen.header[place]) for place in (chosen.text, chosen.label)]
    if all(name in names for name in wanted):
        return Columns(names.index(wanted[0]), names.index(wanted[1]), tuple(first))
    # without a header of its own its columns may be in the same places
    headless = not set(names) & {_plain(name) for name in chosen.header}
    return chosen if headless and len(first) == len(chosen.header) else None


def _first(table: Table) -> list[str]:
    return [cell.strip().lstrip("\ufeff") for cell in table.rows[0]]


def _plain(name: str) -> str:
    """A column's name as letters and digits only: "Review Text" is reviewtext."""
    return "".join(each for each in name.lower() if each.isalnum())


def _asked(
    asked: str | None, first: list[str], table: Table, option: str
) -> tuple[int | None, bool]:
    """Place of a column by its name or its number from 1 on, and whether it was a name."""
    if asked is None:
        return None, False
    names = [name.lower() for name in first]
    if asked.lower() in names:
        return names.index(asked.lower()), True
    if asked.isdigit() and 1 <= int(asked) <= len(first):
        return int(asked) - 1, False
    raise DataError(
        f"{table.path} has no column {asked!r} for {option}; it has {', '.join(first)[:200]}, or "
        f"the numbers 1 to {len(first)}"
    )


def _known(first: list[str]) -> bool:
    return any(_plain(name) in _TEXTS + _LABELS for name in first)


def _place(first: list[str], known: tuple[str, ...], taken: int | None = None) -> int | None:
    names = [_plain(name) for name in first]
    places = (names.index(name) for name in known if name in names)
    return next((place for place in places if place != taken), None)


def _longest(sample: list[list[str]], taken: int | None, width: int) -> int | None:
    """The column with the longest cells."""
    places = [place for place in range(width) if place != taken]
    if not sample or not places:
        return None
    return max(places, key=lambda place: statistics.fmean(len(row[place]) for row in sample))


def _fewest(sample: list[list[str]], taken: int | None, width: int) -> int | None:
    """The column with the fewest different values, but two at least, each in every row."""
    counts: dict[int, int] = {}
    for place in range(width):
        values = [row[place].strip() for row in sample]
        different = len(set(values))
        repeated = different <= max(2, len(values) // 2)
        if place != taken and all(values) and 2 <= different <= _CLASSES and repeated:
            counts[place] = different
    return min(counts, key=lambda place: counts[place], default=None)


def _looks(first: list[str], sample: list[list[str]], label: int) -> bool:
    """A header's cell over the labels is none of the labels."""
    return first[label] not in {row[label].strip() for row in sample}


def rows(table: Table, chosen: Columns, problems: Problems) -> list[tuple[str, str]]:
    """Texts with their labels; rows without either are left out."""
    found = []
    header = chosen.header is not None and _is_header(table.rows[0], chosen)
    wide = len(table.rows[0])
    for number, row in enumerate(table.rows[header:], 1 + header):
        width = len(row)
        while width > wide and not row[width - 1].strip():
            width -= 1
        if width > wide or width <= max(chosen.text, chosen.label):
            problems.note(
                f"{table.path}, row {number}: it has {width} columns, the first one {wide}"
            )
            continue
        text, label = row[chosen.text].strip(), row[chosen.label].strip()
        if text and label:
            found.append((text, label))
        else:
            problems.note(f"{table.path}, row {number}: a text or a label is missing")
    return found


def _is_header(first: list[str], chosen: Columns) -> bool:
    names = [cell.strip().lstrip("\ufeff").lower() for cell in first]
    return chosen.header is not None and [n.lower() for n in chosen.header] == names
