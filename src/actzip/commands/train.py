"""``actzip train``: one training run, or the same run with several methods side by side."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from actzip.commands import options
from actzip.commands.board import short
from actzip.commands.progress import Bar
from actzip.commands.table import LEGEND, table
from actzip.commands.write import write_report
from actzip.memory.fresh_process import call_fresh
from actzip.methods import METHODS
from actzip.tasks import engine, run_folder
from actzip.tasks.comparison import folder_name
from actzip.tasks.config import BASELINES, Config, make, read_config
from actzip.tasks.method_spec import label, pairs, parse
from actzip.tasks.ranks import Ranks, end, joined, leave
from actzip.tasks.result import Result
from actzip.tasks.summary import rows

#: what is set side by side when no method is named
DEFAULT = ("plain", "lossless", "fixed")
RESULTS, ERROR = "results.json", "error.txt"


def train(
    context: typer.Context,
    task: options.Task = None,
    data: options.Data = None,
    model: options.Model = None,
    method: Annotated[
        list[str] | None,
        options.option(
            options.one_of((*BASELINES, *METHODS))
            + " With options: actnn:bits=2. Several are compared."
        ),
    ] = None,
    option: Annotated[list[str] | None, options.option("name=value, of the method.")] = None,
    bits: Annotated[float | None, options.option("Short for --option bits=….")] = None,
    size: options.Size = None,
    lora: options.Lora = None,
    epochs: options.Epochs = None,
    batch: options.Batch = None,
    accumulate: options.Accumulate = None,
    optimizer: options.Optimizer = None,
    rate: options.Rate = None,
    decay: options.Decay = None,
    schedule: options.Schedule = None,
    clip: options.Clip = None,
    precision: options.Precision = None,
    channels_last: options.ChannelsLast = None,
    seed: options.Seed = None,
    side: options.Side = None,
    length: options.Length = None,
    limit: options.Limit = None,
    void: options.Void = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    strict: options.Strict = None,
    threads: options.Threads = None,
    device: options.Device = None,
    fsdp: Annotated[
        bool, options.option("Under torchrun: spread the weights over all processes, too.")
    ] = False,
    out: Annotated[
        Path | None, options.option("Folder for metrics, state, result and report.")
    ] = None,
    state: Annotated[Path | None, options.option("Another file to save the state in.")] = None,
    resume: Annotated[
        Path | None, options.option("A run's folder or saved state to go on from.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Train a model; with several methods, once per method, and compare the costs.

    Without any option: a small ResNet on handwritten digits, plain and compressed. Ctrl-C
    saves the state; `--resume` goes on from it bit for bit. Under torchrun all processes
    train one model together, each with its part of every batch.
    """
    with options.refusals():
        ranks = joined(fsdp)
        jobs = _jobs(context.params, ranks)
        loop = jobs[0].loop()  # also when it runs elsewhere: what cannot work says so now
        loop.check()
    console = options.console(as_json)
    console.quiet = not ranks.first
    if len(jobs) == 1:
        results = [_here(loop, jobs[0], console)]
        leave(ranks)
        if not ranks.first:
            end(ranks)
    else:
        del loop
        results = [_elsewhere(job, console) for job in jobs]
    console.print(table(results), LEGEND)
    folder = jobs[0].out
    if len(jobs) > 1:
        folder = folder.parent
        run_folder.replace_text(folder / RESULTS, json.dumps(figures(results), indent=1) + "\n")
    report = write_report(folder, results, rows(results))
    console.print(f"metrics, saved state and result: {folder}", markup=False, soft_wrap=True)
    console.print(f"report: {report}", markup=False, soft_wrap=True)
    if as_json:
        options.print_json(figures(results))
    end(ranks)


@dataclass(frozen=True)
class Job:
    """One run and where its files go."""

    config: Config
    out: Path
    state: Path | None = None
    resume: Path | None = None
    ranks: Ranks = field(default_factory=Ranks)

    @property
    def label(self) -> str:
        return label(self.config.method, self.config.options)

    def stopped(self) -> typer.Exit:
        """Tell how to go on; what to raise then."""
        if self.ranks.first:
            typer.echo(f"stopped; {self._hint}")
        return typer.Exit(130)

    def failed(self, why: str, trace: str = "") -> typer.Exit:
        """Tell why it failed and how to go on; a traceback goes into the folder."""
        typer.echo(f"the {self.label} run failed: {why}; {self._hint}", err=True)
        if trace:
            with contextlib.suppress(OSError):
                run_folder.replace_text(self.out / ERROR, trace)
                typer.echo(f"where it failed: {self.out / ERROR}", err=True)
        return typer.Exit(1)

    @property
    def _hint(self) -> str:
        place = self.state or self.out
        saved = (place / run_folder.STATE if place == self.out else place).exists()
        return f"go on with: actzip train --resume {place}" if saved else "nothing was saved yet"

    def loop(self) -> engine.Loop:
        """The run, ready to go on."""
        if self.state is not None and self.state.is_dir():
            raise ValueError(f"--state {self.state} is a folder; name a file in it")
        files = run_folder.Journal(None)
        if self.ranks.first:
            for place in filter(None, (self.out, self.state and self.state.parent)):
                run_folder.check_place(place)
            files = run_folder.Journal(self.out, self.state)
        made = engine.Loop(self.config, engine.load(self.config), files, ranks=self.ranks)
        if self.resume is not None:
            made.load_state_dict(run_folder.read_state(self.resume))
        return made


def _jobs(params: dict[str, Any], ranks: Ranks) -> list[Job]:
    given = options.given(params)
    if params["resume"] is not None:
        return [replace(_resumed(given, params), ranks=ranks)]
    configs = [make(**given, method=name, options=own) for name, own in _methods(params)]
    first, out, state = configs[0], params["out"], params["state"]
    if len(configs) > 1 and state is not None:
        raise ValueError("--state is for one method; with several each has one in --out")
    if out is None:
        what = first.method if len(configs) == 1 else "methods"
        out = options.free(options.RUNS / f"{first.task}-{first.model}-{what}")
    elif not ranks.first:
        pass  # the first process looks, and may have made it by now
    elif out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is no folder; name another place")
    elif out.exists() and any(each.suffix != run_folder.NEW for each in out.iterdir()):
        raise ValueError(f"--out {out} is there already; --resume it, or name another folder")
    if len(configs) == 1:
        return [Job(first, out, state, ranks=ranks)]
    if ranks.world > 1:
        raise ValueError("under torchrun one method is trained with; name it with --method")
    return [Job(each, out / folder_name(each)) for each in configs]


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
    """A run from its saved state; an option that differs from its own is refused."""
    resume: Path = params["resume"]
    config = read_config(run_folder.read_state(resume))
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
    return Job(config, params["out"] or folder, params["state"] or None, resume)


def _here(loop: engine.Loop, job: Job, console: Console) -> Result:
    with Bar(console, job.label, job.config.kind) as bar:
        loop.notify = bar.show
        try:
            result = loop.run()
        except KeyboardInterrupt:
            bar.stop()
            raise job.stopped() from None
        except (OSError, RuntimeError, MemoryError) as error:
            bar.stop()
            raise job.failed(options.sentence(error)) from error
        bar.done(result)
    return result


def _elsewhere(job: Job, console: Console) -> Result:
    """The run in a fresh process, so that its peaks are its own."""
    with Bar(console, job.label, job.config.kind) as bar:
        try:
            result: Result = call_fresh(engine.run, job.config, job.out, listen=bar.show)
        except KeyboardInterrupt:  # the other process was told as well, and saved its state
            bar.stop()
            raise job.stopped() from None
        except RuntimeError as error:
            bar.stop()
            raise job.failed(short(str(error)), str(error)) from error
        bar.done(result)
    return result


def figures(results: list[Result]) -> dict[str, Any]:
    """The results as JSON, with what a reader needs to compare them with others."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "results": [result.plain() for result in results],
    }
