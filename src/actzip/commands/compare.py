"""``actzip compare``: the same training with several methods, each run in a fresh process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from actzip.commands import options
from actzip.commands.board import Board, table
from actzip.commands.table import LEGEND
from actzip.commands.write import write_report
from actzip.report.reading import reading
from actzip.tasks import engine
from actzip.tasks.comparison import Run, plan
from actzip.tasks.config import make
from actzip.tasks.machine import why_not
from actzip.tasks.ranks import alone
from actzip.tasks.result import Result
from actzip.tasks.run_folder import Journal, check_place, replace_text
from actzip.tasks.summary import Row, as_csv

METHODS = "plain,checkpoint,actnn,acgc,auto"
ALL = "plain,checkpoint,bf16,lossless,actnn,division,comet,acgc,auto"
#: with AVX2 acgc takes 40 seconds of one core, plain 17: all methods some 230 by estimate
QUICK: dict[str, Any] = {
    "task": "classify",
    "data": "digits",
    "model": "resnet14",
    "side": 24,
    "epochs": 3,
    "batch": 64,
}
JSON, CSV = "compare.json", "compare.csv"


def compare(
    context: typer.Context,
    methods: options.Methods = METHODS,
    every: Annotated[
        bool, options.option("Every method that this machine is not slow at.", "--all")
    ] = False,
    seeds: Annotated[str, options.option("Separated by commas; a run for each.")] = "0",
    quick: Annotated[
        bool,
        options.option(
            "Small: a ResNet-14 on the digits, minutes for all methods together.",
            "--quick",
        ),
    ] = False,
    task: options.Task = None,
    data: options.Data = None,
    model: options.Model = None,
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
    side: options.Side = None,
    length: options.Length = None,
    limit: options.Limit = None,
    void: options.Void = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    strict: options.Strict = None,
    threads: options.Threads = None,
    device: options.Device = None,
    out: Annotated[
        Path | None, options.option("Folder of the runs; those that are there are not run again.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Train with several methods and seeds, one run at a time, and compare them.

    Ctrl-C keeps what is done; the same command with the same --out goes on.
    """
    with options.refusals():
        alone("compare")
        runs = _runs(context.params)
        known = {run.name: run.found() for run in runs}
        first = runs[0].config
        check_place(runs[0].folder)
        engine.Loop(first, engine.load(first), Journal(None)).check()  # says what cannot work
    folder, console = runs[0].folder.parent, options.console(as_json)
    stopped = False
    with Board(console, runs) as board:
        try:
            for run in runs:
                why = why_not(run.config.method) if every and not known[run.name] else ""
                if why:
                    board.skip(run, why)
                else:
                    _one(run, board, known[run.name])
        except KeyboardInterrupt:
            stopped = True
    if board.results:
        values = _end(board, folder, console)
        if as_json:
            options.print_json(values)
    if stopped:
        typer.echo(f"stopped; the same command with --out {folder} goes on")
        raise typer.Exit(130)
    if board.failed:
        raise typer.Exit(1)


def _runs(params: dict[str, Any]) -> list[Run]:
    given = options.given(params)
    if params["quick"]:
        for name in ("task", "data"):
            if given.get(name, QUICK[name]) != QUICK[name]:
                raise ValueError(
                    f"--quick is {QUICK['task']} on {QUICK['data']}, got --{name} {given[name]}; "
                    "leave one of the two out"
                )
        given = {**QUICK, **given}
    if params["every"] and params["methods"] != METHODS:
        raise ValueError("--all is every method; leave it or --methods out")
    chosen = options.methods(ALL if params["every"] else params["methods"])
    configs = [make(**given, method=name, options=own) for name, own in chosen]
    seeds = options.numbers(params["seeds"], "--seeds")
    out: Path | None = params["out"]
    if out is None:
        out = options.free(options.RUNS / f"compare-{configs[0].task}-{configs[0].model}")
    return plan(configs, seeds, out)


def _one(run: Run, board: Board, known: Result | None) -> None:
    if known is not None:
        board.done(run, known, known=True)
        return
    board.start(run)
    try:
        result = run.go(lambda at: board.show(run, at))
    except RuntimeError as error:
        board.fail(run, str(error))
    else:
        board.done(run, result)


def _end(board: Board, folder: Path, console: Console) -> dict[str, Any]:
    """Write and print what was found; it as JSON-ready values."""
    rows = board.rows()
    values = _values(board, rows)
    replace_text(folder / JSON, json.dumps(values, indent=1) + "\n")
    replace_text(folder / CSV, as_csv(rows))
    report = write_report(folder, board.results, rows)
    task = board.results[0].config.kind
    console.print(table(rows, task), LEGEND)
    said = reading([row.plain() for row in rows], task.metric, task.better)
    if said:
        console.print(said, markup=False)
    for name, error in board.failed.items():
        console.print(f"{name} failed:\n{error}", markup=False, soft_wrap=True)
    console.print(f"the same as {JSON} and {CSV} in {folder}", markup=False, soft_wrap=True)
    console.print(f"report: {report}", markup=False, soft_wrap=True)
    return values


def _values(board: Board, rows: Sequence[Row]) -> dict[str, Any]:
    """All that was found, as JSON-ready values; curves are in the folders of the runs."""
    first = board.results[0].config.plain()
    shared = {name: first[name] for name in first if name not in ("method", "options", "seed")}
    runs = []
    for result in board.results:
        values = result.plain()
        cost = {name: values["cost"][name] for name in _COST}
        runs.append(
            {
                "label": result.label,
                "seed": result.config.seed,
                "cost": cost,
                **{name: values[name] for name in _RUN},
            }
        )
    return {
        "torch": torch.__version__,
        "threads": result.config.threads or torch.get_num_threads(),
        "config": shared,
        "metric": board.results[0].config.kind.metric,
        "rows": [row.plain() for row in rows],
        "runs": runs,
        "failed": board.failed,
        "skipped": board.skipped,
    }


_RUN = ("metric", "metrics", "tests", "step_seconds", "seconds", "resident_peak")
_COST = ("raw_bytes", "stored_bytes", "held_bytes", "live_peak", "ratio")
