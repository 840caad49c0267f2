"""The saved tensors as a table of 80 columns for a terminal, and as HTML for a notebook."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape

from actzip.autograd.ledger import Stats
from actzip.memory.measure import size
from actzip.report.contents import Entry, contents, ratio, title

_WIDTH = 80
_NAME = 46  #: columns for a module's name; the rest are numbers

#: Colours are left to the notebook, light or dark.
_STYLE = (
    "<style>.actzip{font-size:13px}.actzip td,.actzip th{padding:2px 12px;text-align:right;"
    "vertical-align:top}.actzip td:first-child,.actzip th:first-child{text-align:left}"
    ".actzip summary{cursor:pointer}.actzip div{opacity:.7;padding-left:1.2em}</style>"
)


def table(
    stats: Stats, method: str, *, peak: int, depth: int | None = None, top: int | None = None
) -> str:
    """Where the bytes went; `depth` and `top` as in `contents`, `peak` as in `title`."""
    found = contents(stats, depth, top)
    lines = [*textwrap.wrap(title(stats, method, peak), _WIDTH), ""]
    if found.common:
        lines += [*textwrap.wrap(f"paths are below {found.common}", _WIDTH), ""]
    lines.append(_line("module", "plain", "stored", "ratio"))
    lines.append("─" * _WIDTH)
    for entry in found.entries:
        lines.append(_line(entry.name, *_numbers(entry)))
        lines += [line for kept in entry.kept for line in _indented(kept)]
    lines += [line for note in found.notes for line in _indented(note)]
    return "\n".join(lines) + "\n"


def as_html(stats: Stats, method: str, *, peak: int, below: Sequence[str] = ()) -> str:
    """The same for a notebook: a row for each module, which opens to what it keeps."""
    found = contents(stats)
    rows = "".join(map(_row, found.entries))
    common = f"<p>paths are below {escape(found.common)}</p>" if found.common else ""
    notes = "".join(f"<p>{escape(note)}</p>" for note in (*found.notes, *below))
    return (
        f'{_STYLE}<div class="actzip" style="opacity:1;padding:0">'
        f"<p>{escape(title(stats, method, peak))}</p>{common}"
        "<table><thead><tr><th>module</th><th>plain</th><th>stored</th><th>ratio</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>{notes}</div>"
    )


def _row(entry: Entry) -> str:
    name = escape(entry.name)
    if entry.kept:
        kept = "".join(f"<div>{escape(line)}</div>" for line in entry.kept)
        name = f"<details><summary>{name}</summary>{kept}</details>"
    numbers = "".join(f"<td>{each}</td>" for each in _numbers(entry))
    return f"<tr><td>{name}</td>{numbers}</tr>"


def _numbers(entry: Entry) -> tuple[str, str, str]:
    return size(entry.raw), size(entry.stored), ratio(entry.raw, entry.stored)


def _line(name: str, plain: str, stored: str, smaller: str) -> str:
    first, *more = textwrap.wrap(name, _NAME) or [""]
    numbers = f" {plain:>11} {stored:>11} {smaller:>8}"
    return "\n".join([f"{first:{_NAME}}{numbers}", *more])


def _indented(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")
