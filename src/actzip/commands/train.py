"""``actzip train``: one training run, or the same run with several methods side by side."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from actzip.commands.progress import Bar
from actzip.commands.table import LEGEND, table
from actzip.memory.measure import call_fresh
from actzip.tasks import engine, journal
from actzip.tasks.catalogue import TASKS
from actzip.tasks.config import METHODS, OPTIMIZERS, PRECISIONS, SCHEDULES, Config, make
from actzip.tasks.spelling import label, pairs, parse

#: what is set side by side when no method is named
DEFAULT = ("plain", "lossless", "fixed")
RUNS = Path("runs")
RESULTS = "results.json"


def _option(text: str, **more: Any) -> Any:
    return typer.Option(help=text, **more)


def _names(names: Any) -> str:
    return "One of " + ", ".join(names) + "."


def train(
    context: typer.Context,
    task: Annotated[str | None, _option(_names(TASKS))] = None,
    data: Annotated[str | None, _option("A built-in name or the path of your own data.")] = None,
    model: Annotated[str | None, _option("A model of the task; a wrong name lists them.")] = None,
    method: Annotated[
        list[str] | None,
        _option(_names(METHODS) + " With options: actnn:bits=2. Several are compared."),
    ] = None,
    option: Annotated[list[str] | None, _option("name=value, of the method.")] = None,
    bits: Annotated[float | None, _option("Short for --option bits=….")] = None,
    size: Annotated[list[str] | None, _option("name=value, of the model: width=32.")] = None,
    epochs: Annotated[int | None, _option("Passes over the training examples.")] = None,
    batch: Annotated[int | None, _option("Examples of a step.")] = None,
    accumulate: Annotated[int | None, _option("Parts of a batch, one backward each.")] = None,
    optimizer: Annotated[str | None, _option(_names(OPTIMIZERS))] = None,
    rate: Annotated[float | None, typer.Option("--rate", "--lr", help="Learning rate.")] = None,
    decay: Annotated[float | None, _option("Weight decay.")] = None,
    schedule: Annotated[str | None, _option(_names(SCHEDULES))] = None,
    clip: Annotated[float | None, _option("Largest norm of the gradient; 0: any.")] = None,
    precision: Annotated[str | None, _option(_names(PRECISIONS))] = None,
    channels_last: Annotated[
        bool | None, typer.Option("--channels-last", help="Lay pictures out channels last.")
    ] = None,
    seed: Annotated[int | None, _option("Of weights, order, augmentation, rounding.")] = None,
    side: Annotated[int | None, _option("Height and width of pictures.")] = None,
    length: Annotated[int | None, _option("Tokens of a text.")] = None,
    limit: Annotated[int | None, _option("Most examples of a split.")] = None,
    threads: Annotated[int | None, _option("CPU threads; else PyTorch's own choice.")] = None,
    out: Annotated[Path | None, _option("Folder for metrics, checkpoint and result.")] = None,
    checkpoint: Annotated[Path | None, _option("Another place for the checkpoint.")] = None,
    resume: Annotated[Path | None, _option("A run's folder or checkpoint to go on from.")] = None,
) -> None:
    """Train a model; with several methods, once per method, and compare the costs.

    Without any option: a small ResNet on handwritten digits, plain and compressed. Ctrl-C
    leaves a checkpoint; `--resume` goes on from it bit for bit.
    """
    with _refusals():
        jobs = _jobs(context.params)
        loop = jobs[0].loop()  # also when it runs elsewhere: what cannot work says so now
    console = Console()
    if len(jobs) == 1:
        results = [_here(loop, jobs[0], console)]
    else:
        del loop
        results = [_elsewhere(job, console) for job in jobs]
    console.print(table(results), LEGEND)
    folder = jobs[0].out
    if len(jobs) > 1:
        folder = folder.parent
        journal.replace_text(folder / RESULTS, json.dumps(figures(results), indent=1) + "\n")
    console.print(f"metrics, checkpoint and result: {folder}", markup=False)


@dataclass(frozen=True)
class Job:
    """One run and where its files go."""

    config: Config
    out: Path
    checkpoint: Path | None = None
    resume: Path | None = None

    @property
    def label(self) -> str:
        return label(self.config.method, self.config.options)

    def stopped(self) -> typer.Exit:
        """Tell how to go on; what to raise then."""
        place = self.checkpoint or self.out
        saved = (place / journal.CHECKPOINT if place == self.out else place).exists()
        hint = f"go on with: actzip train --resume {place}" if saved else "nothing was saved yet"
        typer.echo(f"stopped; {hint}")
        return typer.Exit(130)

    def loop(self) -> engine.Loop:
        """The run, ready to go on."""
        files = journal.Journal(self.out, self.checkpoint)
        made = engine.Loop(self.config, engine.load(self.config), files)
        if self.resume is not None:
            made.load_state_dict(journal.read_checkpoint(self.resume))
        return made


def _jobs(params: dict[str, Any]) -> list[Job]:
    known = {field.name for field in fields(Config)} - {"method", "options"}
    given = {name: params[name] for name in known & set(params) if params[name] is not None}
    if params["size"]:
        given["sizes"] = pairs(params["size"])
    if params["resume"] is not None:
        return [_resumed(given, params)]
    configs = [make(**given, method=name, options=own) for name, own in _methods(params)]
    first, out, checkpoint = configs[0], params["out"], params["checkpoint"]
    if len(configs) > 1 and checkpoint is not None:
        raise ValueError("--checkpoint is for one method; with several each has one in --out")
    if out is None:
        what = first.method if len(configs) == 1 else "methods"
        out = _free(RUNS / f"{first.task}-{first.model}-{what}")
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"--out {out} is there already; --resume it, or name another folder")
    if len(configs) == 1:
        return [Job(first, out, checkpoint)]
    return [Job(each, out / _file_name(label(each.method, each.options))) for each in configs]


def _methods(params: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The methods with their options, given in either spelling."""
    named = [parse(text) for text in dict.fromkeys(params["method"] or DEFAULT)]
    shared = pairs(params["option"] or ())
    if params["bits"] is not None:
        bits: float = params["bits"]
        shared["bits"] = int(bits) if bits.is_integer() else bits
    if shared and len(named) > 1:
        raise ValueError("--option and --bits are for one method; with several write actnn:bits=2")
    return [(name, {**own, **shared}) for name, own in named]


def _resumed(given: dict[str, Any], params: dict[str, Any]) -> Job:
    """The run of a checkpoint; an option that differs from its own is refused."""
    resume: Path = params["resume"]
    config = Config(**journal.read_checkpoint(resume)["config"])
    if params["method"]:
        (given["method"], given["options"]), *others = _methods(params)
        if others:
            raise ValueError("--resume goes on with one run; name at most its own method")
    for name, value in given.items():
        if getattr(config, name) != value:
            raise ValueError(
                f"the run in {resume} has {name}={getattr(config, name)!r}, asked was {value!r}; "
                "a resumed run keeps its settings: leave the option out"
            )
    folder = resume if resume.is_dir() else resume.parent
    return Job(config, params["out"] or folder, params["checkpoint"] or None, resume)


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.=]+", "-", text)


def _free(folder: Path) -> Path:
    """`folder`, or the first of folder-2, folder-3, … that is not there yet."""
    numbers = itertools.count(2)
    free = folder
    while free.exists():
        free = folder.with_name(f"{folder.name}-{next(numbers)}")
    return free


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """What cannot be trained ends with a message, not with a traceback."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except ImportError as error:  # a package that only some data need
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error


def _here(loop: engine.Loop, job: Job, console: Console) -> engine.Result:
    with Bar(console, job.label, job.config.kind) as bar:
        loop.notify = bar.show
        try:
            result = loop.run()
        except KeyboardInterrupt:
            bar.stop()
            raise job.stopped() from None
        bar.done(result)
    return result


def _elsewhere(job: Job, console: Console) -> engine.Result:
    """The run in a fresh process, so that its peaks are its own."""
    with Bar(console, job.label, job.config.kind) as bar:
        try:
            result: engine.Result = call_fresh(engine.run, job.config, job.out, listen=bar.show)
        except KeyboardInterrupt:  # the other process was told as well, and saved its state
            bar.stop()
            raise job.stopped() from None
        except RuntimeError as error:
            bar.stop()
            typer.echo(f"the {job.label} run failed: {error}", err=True)
            raise typer.Exit(1) from error
        bar.done(result)
    return result


def figures(results: list[engine.Result]) -> dict[str, Any]:
    """The results as JSON, with what a reader needs to compare them with others."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "results": [result.plain() for result in results],
    }
