"""``actzip data``: what would be read of a data set, before anything is trained with it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from actzip.commands import options
from actzip.commands.options import option
from actzip.commands.sheet import write_sheet
from actzip.tasks import data as sources
from actzip.tasks.data.contract import Boxes, Data, Examples

_CHUNK = 256  #: examples that are counted at a time


def data(
    path: Annotated[str, typer.Argument(help="The path of your own data, or a built-in name.")],
    task: options.Task = None,
    side: options.Side = None,
    length: options.Length = None,
    limit: options.Limit = None,
    void: options.Void = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    strict: options.Strict = None,
    sheet: Annotated[
        Path | None, option("Write a contact sheet of training pictures, a PNG file.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show what would be read: layout, counts, classes, and every example that is left out."""
    with options.refusals(), warnings.catch_warnings():
        warnings.simplefilter("ignore", sources.DataWarning)  # all of them are listed below
        options.check_file(sheet)
        found = sources.load(
            path,
            task or sources.task_of(path),
            side=side,
            length=length,
            limit=limit,
            void=void,
            text_column=text_column,
            label_column=label_column,
            strict=bool(strict),
        )
        values = summary(found)
        if sheet is not None:
            write_sheet(sheet, found)
    _show(values, options.console(as_json), sheet)
    if as_json:
        options.print_json(values)


def summary(found: Data) -> dict[str, Any]:
    """What was read, as JSON-ready values."""
    return {
        "path": found.name,
        "task": found.task,
        "layout": found.layout or "built-in",
        "train": len(found.train),
        "test": len(found.test),
        "side": found.side or None,
        "length": found.length or None,
        "vocabulary": found.vocabulary or None,
        "classes": [
            {"name": name, "train": first, "test": second}
            for name, first, second in zip(
                found.classes,
                counts(found.train, len(found.classes)),
                counts(found.test, len(found.classes)),
                strict=True,
            )
        ],
        "problems": list(found.problems),
    }


def counts(examples: Examples, classes: int) -> list[int]:
    """How many examples, objects or pixels each class has."""
    total = torch.zeros(classes, dtype=torch.int64)
    if not classes:
        return []
    for indices in torch.arange(len(examples)).split(_CHUNK):
        _, targets = examples.batch(indices)
        if isinstance(targets, list):
            targets = torch.cat([one.labels for one in targets if isinstance(one, Boxes)])
        total += torch.bincount(targets[targets >= 0].flatten(), minlength=classes)
    return [int(count) for count in total]


_COUNTED = {"detect": "objects", "segment": "pixels"}


def _show(values: dict[str, Any], console: Console, sheet: Path | None) -> None:
    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    say(f"{values['path']}: {values['task']}, {values['layout']}")
    inputs = f"pictures of {values['side']}×{values['side']}" if values["side"] else (
        f"{values['length']} tokens each, {values['vocabulary']} different"
    )  # fmt: skip
    say(f"{values['train']} to train with, {values['test']} to test with; {inputs}")
    if values["classes"]:
        what = _COUNTED.get(values["task"], "examples")
        made = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
        made.add_column("class", overflow="fold")
        for name in (f"training {what}", f"test {what}"):
            made.add_column(name, justify="right")
        for each in values["classes"]:
            made.add_row(each["name"], str(each["train"]), str(each["test"]))
        console.print(made)
    if values["problems"]:
        say(f"left out, {len(values['problems'])}:")
        for text in values["problems"]:
            say(f"  {text}")
    if sheet is not None:
        say(f"contact sheet: {sheet}")
