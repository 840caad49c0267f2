"""The command line: ``actzip train`` trains with and without actzip and compares."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import actzip
from actzip.memory.measure import call_fresh, size
from actzip.tasks import classify, digits

app = typer.Typer(
    help="Train PyTorch models with the tensors that autograd saves held in compressed form.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def main() -> None:
    """The entry point of the ``actzip`` command."""
    app()


def _print_version(asked: bool) -> None:
    if not asked:
        return
    typer.echo(f"actzip {actzip.__version__}")
    raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Options that come before a command."""


@app.command()
def train(
    method: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(classify.METHODS)}; may be given several times."),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1)] = 5,
    batch: Annotated[int, typer.Option(min=1)] = 64,
    model: Annotated[str, typer.Option(help=f"One of {', '.join(classify.MODELS)}.")] = "resnet20",
    seed: Annotated[int, typer.Option(help="Of the weights, the split and the order.")] = 0,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads; without it PyTorch's own choice.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the figures to this JSON file.")] = None,
) -> None:
    """Train a small ResNet on handwritten digits, once per method, and compare the costs.

    Each method runs in a fresh process, so that the peaks are its own.
    """
    names = list(dict.fromkeys(method or classify.METHODS))
    try:
        base = classify.Config(model=model, epochs=epochs, batch=batch, seed=seed, threads=threads)
        configs = [replace(base, method=name) for name in names]
        digits.require()
        if out is not None and not out.parent.is_dir():
            raise ValueError(f"--out {out}: there is no folder {out.parent}; make it first")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except ImportError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    console = Console()
    results = [_train_once(config, console) for config in configs]
    console.print(table(results), _LEGEND)
    if out is not None:
        out.write_text(json.dumps(figures(results), indent=1) + "\n")


def figures(results: list[classify.Result]) -> dict[str, Any]:
    """The results as JSON, with what a reader needs to compare them with others."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "results": [asdict(result) for result in results],
    }


def _train_once(config: classify.Config, console: Console) -> classify.Result:
    columns = (
        TextColumn("{task.description:9}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(config.method, total=None, figures="starting")

        def show(at: classify.Progress) -> None:
            tested = "" if at.accuracy is None else f" · accuracy {at.accuracy:.1%}"
            figures = f"loss {at.loss:.3f}{tested} · {at.step_seconds * 1e3:.0f} ms"
            bar.update(task, completed=at.step, total=at.steps, figures=figures)

        try:
            result: classify.Result = call_fresh(classify.run, config, listen=show)
        except RuntimeError as error:
            bar.stop()
            typer.echo(f"the {config.method} run failed: {error}", err=True)
            raise typer.Exit(1) from error
        figures = f"accuracy {result.accuracy:.1%} · {result.step_seconds * 1e3:.0f} ms"
        bar.update(task, figures=figures)
    return result


def table(results: list[classify.Result]) -> Table:
    """The results side by side, a column for each method."""
    first = results[0].config
    made = Table()
    made.add_column(f"{first.model}, batch {first.batch}")
    for result in results:
        made.add_column(result.config.method, justify="right")
    plain = next((r for r in results if r.config.method == "plain"), None)
    for name, show in _ROWS.items():
        made.add_row(name, *(show(result, plain) for result in results))
    return made


def _step(result: classify.Result, plain: classify.Result | None) -> str:
    own = f"{result.step_seconds * 1e3:.0f} ms"
    if plain is None or plain is result:
        return own
    return f"{own} ({result.step_seconds / plain.step_seconds:.2f}×)"


_LEGEND = (
    "saved: what is kept for backward in one step. Peaks are above the level before "
    "the first step; live counts tensors, resident the whole process."
)
_Show = Callable[[classify.Result, classify.Result | None], str]

_ROWS: dict[str, _Show] = {
    "test accuracy": lambda r, plain: f"{r.accuracy:.2%}",
    "last loss": lambda r, plain: f"{r.loss:.6f}",
    "step time, median": _step,
    "saved": lambda r, plain: size(r.cost.stored_bytes),
    "saved, ratio": lambda r, plain: f"{r.cost.ratio:.2f}×",
    "live peak": lambda r, plain: size(r.cost.live_peak),
    "resident peak": lambda r, plain: (
        "not known here" if r.resident_peak is None else size(r.resident_peak)
    ),
}
