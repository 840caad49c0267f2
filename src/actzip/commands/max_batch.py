"""``actzip max-batch``: the largest batch that truly runs under a limit of resident memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from actzip import accelerator
from actzip.commands import options
from actzip.commands.compare import METHODS
from actzip.commands.options import option
from actzip.memory.measure import size as shown
from actzip.memory.sizes import read_bytes
from actzip.tasks.config import Config, make
from actzip.tasks.max_batch_search import Largest, StepError, Try, attempt, available, floor, search
from actzip.tasks.method_spec import label
from actzip.tasks.ranks import started
from actzip.tasks.run_folder import replace_text


def max_batch(
    context: typer.Context,
    memory: Annotated[
        str,
        option(
            "The most resident bytes of the whole process: 4GiB, 4G (the same), 900MB; "
            "with --device, of its tensors."
        ),
    ],
    methods: options.Methods = METHODS,
    start: Annotated[int, typer.Option(help="The batch that is tried first.", min=1)] = 16,
    most: Annotated[int, typer.Option(help="Larger batches are not tried.", min=1)] = 65536,
    within: Annotated[
        float, typer.Option(help="How exact: 0.02 is to 2 %; 0 to one example.", min=0, max=1)
    ] = 0.02,
    task: options.Task = None,
    data: options.Data = None,
    model: options.Model = None,
    size: options.Size = None,
    lora: options.Lora = None,
    optimizer: options.Optimizer = None,
    precision: options.Precision = None,
    channels_last: options.ChannelsLast = None,
    side: options.Side = None,
    length: options.Length = None,
    void: options.Void = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    strict: options.Strict = None,
    threads: options.Threads = None,
    device: options.Device = None,
    out: Annotated[Path | None, option("Write what was found as JSON.")] = None,
    as_json: options.Json = False,
) -> None:
    """Find the largest batch of each method by real steps in fresh processes.

    A batch fits when its steps end and the process never had more resident memory than the limit.
    Under torchrun as many processes train together in every try, and batch and limit are those of
    each.
    """
    console = options.console(as_json)
    rank, world = started()
    if rank:
        return  # the first one searches, with processes of its own
    with options.refusals():
        nbytes = read_bytes(memory)
        configs = _configs(context.params, nbytes)
        options.check_file(out)
        held = _say_floor(configs[0], nbytes, console)
    found: list[Largest] = []
    stopped, failed = False, ""
    try:
        for config in configs:
            first = found[0].batch if found and found[0].batch else start
            how = (nbytes, held, min(first, most), most, within)
            found.append(_largest(config, *how, console, world))
    except KeyboardInterrupt:
        stopped = True
    except StepError as error:
        failed = f"{label(config.method, config.options)}: a step failed, not for memory: {error}"
    if found:
        used = configs[0].device
        legend = LEGEND if used == "cpu" else ON_DEVICE
        console.print(table(found, configs[0]), legend.format(limit=shown(nbytes), device=used))
        if world > 1:
            console.print(f"{world} processes train together; all figures are those of each.")
        values: dict[str, Any] = {"torch": torch.__version__, "limit": nbytes, "within": within}
        values["processes"] = world
        values["config"] = configs[0].plain()
        values["found"] = [{**each.plain(), "ratio": ratio(each, found)} for each in found]
        if as_json:
            options.print_json(values)
        if out is not None:
            replace_text(out, json.dumps(values, indent=1) + "\n")
            console.print(f"written: {out}", markup=False, soft_wrap=True)
    if failed:
        typer.echo(failed, err=True)
    if stopped or failed:
        raise typer.Exit(130 if stopped else 1)


ON_DEVICE = (
    "Tensors of {device}, at most {limit}; three steps of the optimizer in a fresh process for "
    "every try."
)
LEGEND = (
    "Whole process, imports included, at most {limit} resident; three steps of the optimizer in a "
    "fresh process for every try."
)


def _configs(params: dict[str, Any], limit: int) -> list[Config]:
    on = accelerator.choose(params["device"] or "cpu")
    free = available(on)
    if free is not None and limit > free:
        has = "this machine has free" if on.type == "cpu" else f"{on} has"
        raise ValueError(
            f"--memory {params['memory']} is more than the {shown(free)} that {has}; a try could "
            "push out other programs: choose less"
        )
    given = options.given(params)
    chosen = options.methods(params["methods"])
    return [make(**given, batch=1, method=name, options=own) for name, own in chosen]


def _say_floor(config: Config, limit: int, console: Console) -> int:
    """Tell what no batch can be below; a limit that is lower is refused at once."""
    held = floor(config)
    text = (
        f"{shown(held.total)} are held before the first step: {shown(held.imports)} by Python and "
        f"its imports, {shown(held.model)} by {config.model}, the examples and what reads them"
    )
    if held.total > limit:
        raise ValueError(f"{text}; --memory is {shown(limit)}: choose more")
    console.print(text, markup=False, soft_wrap=True)
    return held.total


def _largest(
    config: Config,
    limit: int,
    held: int,
    start: int,
    most: int,
    within: float,
    console: Console,
    world: int,
) -> Largest:
    tries: list[Try] = []
    name = label(config.method, config.options)

    def tried(batch: int) -> Try:
        found = attempt(replace(config, batch=batch), limit, world)
        tries.append(found)
        peak = "" if found.resident_peak is None else f", {shown(found.resident_peak)}"
        text = f"fits{peak}" if found.fits else f"does not fit: {found.why}{peak}"
        said = f"{name}, batch {batch}: {text}, tried in {found.took:.1f} s"
        console.print(said, markup=False, soft_wrap=True)
        return found

    return Largest(name, search(tried, start, most, within, limit, held), tries)


def ratio(each: Largest, found: Sequence[Largest]) -> float | None:
    """How many times plain's batch; None without one."""
    plain = next((other.batch for other in found if other.label == "plain"), 0)
    return each.batch / plain if plain else None


def table(found: Sequence[Largest], config: Config) -> Table:
    """A line for each method."""
    made = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    made.add_column(config.model, overflow="fold")
    for name in ("largest batch", "× plain", "resident peak", "step", "examples/s"):
        made.add_column(name, justify="right")
    for each in found:
        best, times = each.best, ratio(each, found)
        if best is None or best.resident_peak is None or best.seconds is None:
            made.add_row(each.label, "none", "–", "–", "–", each.why)
            continue
        made.add_row(
            each.label,
            str(each.batch),
            "–" if times is None else f"{times:.2f}×",
            shown(best.resident_peak),
            f"{best.seconds * 1e3:.0f} ms",
            f"{each.batch / best.seconds:.1f}",
        )
    return made
