"""The options that several commands share, each written once."""

from __future__ import annotations

import contextlib
import itertools
import json
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from actzip import accelerator
from actzip.tasks.catalogue import TASKS
from actzip.tasks.config import OPTIMIZERS, PRECISIONS, SCHEDULES, Config
from actzip.tasks.first_process import is_first_here
from actzip.tasks.max_batch_search import StepError, is_out_of_memory
from actzip.tasks.method_spec import pairs, parse
from actzip.tasks.run_folder import check_place
from actzip.tasks.task import first_line

RUNS = Path("runs")  #: where results go when no folder is named


def option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text)


def one_of(names: Iterable[str]) -> str:
    return "One of " + ", ".join(names) + "."


Task = Annotated[str | None, option(one_of(TASKS) + " Left out: what the data are for.")]
Data = Annotated[str | None, option("A built-in name or the path of your own data.")]
Model = Annotated[str | None, option("A model of the task; a wrong name lists them.")]
Size = Annotated[list[str] | None, option("name=value, of the model: width=32.")]
Lora = Annotated[
    int | None, option("Short for --size lora=…: train adapters of this rank, not the weights.")
]
Epochs = Annotated[int | None, option("Passes over the training examples.")]
Batch = Annotated[int | None, option("Examples of a step.")]
Accumulate = Annotated[int | None, option("Parts of a batch, one backward each.")]
Optimizer = Annotated[str | None, option(one_of(OPTIMIZERS))]
Rate = Annotated[float | None, option("Learning rate.", "--rate", "--lr")]
Decay = Annotated[float | None, option("Weight decay.")]
Schedule = Annotated[str | None, option(one_of(SCHEDULES))]
Clip = Annotated[float | None, option("Largest norm of the gradient; 0: any.")]
Precision = Annotated[str | None, option(one_of(PRECISIONS))]
ChannelsLast = Annotated[bool | None, option("Lay pictures out channels last.", "--channels-last")]
Seed = Annotated[int | None, option("Of weights, order, augmentation, rounding.")]
Side = Annotated[int | None, option("Height and width of pictures.")]
Length = Annotated[int | None, option("Tokens of a text.")]
Limit = Annotated[int | None, option("Most examples of a split.")]
Void = Annotated[int | None, option("Value of masks that does not count; else 255.")]
TextColumn = Annotated[str | None, option("Name or number of a table's texts; else guessed.")]
LabelColumn = Annotated[str | None, option("Name or number of a table's labels; else guessed.")]
Strict = Annotated[
    bool | None, option("Refuse data in which anything is wrong; else it is left out.", "--strict")
]
Threads = Annotated[int | None, option("CPU threads; else PyTorch's own choice.")]
Device = Annotated[str | None, option(one_of(accelerator.TYPES) + " Or one of several, as cuda:1.")]
Json = Annotated[
    bool, option("Print what was found as JSON; all else goes to the error output.", "--json")
]
Methods = Annotated[
    str | None, option("Separated by commas, with options: plain,actnn:bits=3,comet.")
]


def given(params: dict[str, Any]) -> dict[str, Any]:
    """What of a config the user has said, but for the method."""
    known = {field.name for field in fields(Config)} - {"method", "options"}
    found = {name: params[name] for name in known & set(params) if params[name] is not None}
    if params.get("size"):
        found["sizes"] = pairs(params["size"])
    if params.get("lora") is not None:
        found["sizes"] = {**found.get("sizes", {}), "lora": params["lora"]}
    return found


def methods(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Methods with their options out of one text.

    A comma separates both methods and options: a piece with "=" and without ":" is an option of
    the method before it.
    """
    names: list[str] = []
    for piece in filter(None, (each.strip() for each in text.split(","))):
        if "=" in piece and ":" not in piece and names and ":" in names[-1]:
            names[-1] += f",{piece}"
        else:
            names.append(piece)
    if not names:
        raise ValueError(f"methods are separated by commas, got {text!r}")
    return [parse(name) for name in dict.fromkeys(names)]


def numbers(text: str, what: str) -> list[int]:
    """Whole numbers out of a text such as 0,1,2, each once."""
    try:
        found = [int(each) for each in text.split(",")]
    except ValueError:
        raise ValueError(f"{what} are whole numbers separated by commas, got {text!r}") from None
    return list(dict.fromkeys(found))


def free(folder: Path) -> Path:
    """`folder`, or the first of folder-2, folder-3, … that is not there yet."""
    counted = itertools.count(2)
    found = folder
    while found.exists():
        found = folder.with_name(f"{folder.name}-{next(counted)}")
    return found


def console(as_json: bool) -> Console:
    """Where people read: beside the output when that is JSON."""
    return Console(stderr=as_json)


def print_json(values: Any) -> None:
    """JSON on the output."""
    typer.echo(json.dumps(values, indent=1))


def check_file(path: Path | None) -> None:
    """Raise ValueError when a file to write at the end cannot be written."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"--out {path} is a folder; name a file in it")
    check_place(path.parent)


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """What cannot be done ends with a message, not with a traceback."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, kind, *where: f"warning: {message}\n"
    try:
        yield
    except ValueError as error:
        if not is_first_here():  # the first process is told the same, and says it
            raise typer.Exit(2) from error
        raise typer.BadParameter(str(error)) from error
    except (OSError, RuntimeError, MemoryError) as error:
        typer.echo(sentence(error), err=True)
        raise typer.Exit(1) from error
    except ImportError as error:  # a package that only some data need
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    finally:
        warnings.formatwarning = before


def sentence(error: Exception) -> str:
    """A failure of the machine or of a try as a line; what else there is, is raised again."""
    if isinstance(error, StepError):
        return str(error)
    if isinstance(error, OSError):
        at = f"{error.filename}: " if error.filename else ""
        return f"{at}{error.strerror or first_line(error)}"
    if isinstance(error, MemoryError) or is_out_of_memory(str(error)):
        return f"out of memory ({first_line(error)}); choose a smaller --batch, --side or --size"
    raise error
