"""``actzip plan``: what a training step would take, without training and without allocating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from actzip import accelerator, planning
from actzip.commands import options
from actzip.commands.options import option
from actzip.commands.profile import shares
from actzip.memory.measure import size as shown
from actzip.memory.sizes import read_bytes
from actzip.methods import resolve
from actzip.plan import look
from actzip.plan.largest import largest
from actzip.plan.step import Step, step
from actzip.plan.target import Target, builtin, imported, real_builtin, real_imported
from actzip.report import html
from actzip.tasks.config import make
from actzip.tasks.method_spec import label
from actzip.tasks.ranks import alone
from actzip.tasks.run_folder import replace_text
from actzip.tasks.task import first_line

PLAIN = "plain"
_SIZES = ("lossless", "actnn", "division")  #: methods whose bytes follow from shapes
ELSEWHERE = (
    "Predicted for {device} from what the ops of a CPU save: attention may save other tensors "
    "there. What its libraries take while an op runs is not in it, nor the allocator's rounding."
)
_NOTE = "Predicted from shapes. Whole step: weights, gradients, optimizer, inputs and live tensors."


@dataclass(frozen=True)
class Plan:
    """What was found."""

    target: Target
    steps: list[Step]
    batches: dict[str, int]  #: the largest of each method within the limit
    notes: list[str]


def plan(
    context: typer.Context,
    function: Annotated[
        str | None,
        typer.Argument(help="package.module:function that returns (model, inputs)."),
    ] = None,
    methods: Annotated[
        str, option("Beside plain and auto, separated by commas: lossless,actnn:bits=3.")
    ] = "lossless,actnn",
    noises: Annotated[
        str, option("Of auto, separated by commas; empty: no real step is run.")
    ] = "0.02,0.05,0.1",
    memory: Annotated[
        str | None, option("A limit, such as 8GiB: find the largest batch of each method.")
    ] = None,
    task: options.Task = None,
    data: options.Data = None,
    model: options.Model = None,
    size: options.Size = None,
    batch: options.Batch = None,
    optimizer: options.Optimizer = None,
    precision: options.Precision = None,
    channels_last: options.ChannelsLast = None,
    side: options.Side = None,
    length: options.Length = None,
    device: Annotated[
        str | None,
        option(
            "Of the step, it need not be here: " + ", ".join(accelerator.TYPES) + ". If it is, its "
            "memory is the limit unless --memory says another."
        ),
    ] = None,
    out: Annotated[Path | None, option("Write the same as a page with pictures.")] = None,
    as_json: options.Json = False,
) -> None:
    """Predict what a training step takes, and the largest batch, without training or allocating.

    Bytes of weights, gradients, optimizer, saved tensors by module. Without a function: a built-in
    model.
    """
    with options.refusals():
        alone("plan")
        options.check_file(out)
        found = _found(context.params)
    console = options.console(as_json)
    console.print(found.target.name, markup=False)
    console.print(held(found.target), summary(found))
    console.print(shares("module", found.steps, [each.modules for each in found.steps]))
    for note in (_NOTE, *found.notes):
        console.print(note, markup=False)
    if out is not None:
        replace_text(out, page(found))
        console.print(f"report: {out}", markup=False, soft_wrap=True)
    if as_json:
        options.print_json(plain_values(found))


def _found(params: dict[str, Any]) -> Plan:
    device = accelerator.named(params["device"] or "cpu")
    limit = _limit(params["memory"], params["device"])
    chosen = [(name, own) for name, own in options.methods(params["methods"]) if name != PLAIN]
    for name, own in chosen:
        if name not in _SIZES:
            raise ValueError(
                f"plan predicts plain, {', '.join(_SIZES)} and, with --noises, auto; the bytes of "
                f"{name!r} follow from values: `actzip profile` measures them"
            )
        resolve(name, own)
    noises = [_noise(text) for text in filter(None, params["noises"].split(","))]
    function, given = params["function"], options.given({**params, "device": None})
    config = make(**given) if function is None else None
    with planning.fakes() as fake:
        if config is not None:
            target = builtin(config, fake)
        else:
            batch, optimizer = given.pop("batch", None), given.pop("optimizer", "adamw")
            if given:
                raise ValueError(f"{', '.join(given)}: of a built-in model, not of {function}")
            target = imported(function, batch, optimizer, fake)
        target = replace(target, device=device.type)
        try:
            steps, batches = _steps(target, chosen, limit, fake)
        except (RuntimeError, NotImplementedError) as error:
            raise ValueError(
                f"{target.name} cannot be run without values ({first_line(error)}); `actzip "
                "profile` measures a real pass of it"
            ) from error
    notes = list(target.notes)
    if device.type != "cpu":
        notes.append(ELSEWHERE.format(device=device.type))
    for op in steps[0].untold:
        notes.append(
            f"{op} keeps a workspace for backward whose size is not told: more is saved than these "
            "figures say; `actzip profile` measures it"
        )
    if noises and target.weights > look.MOST:
        notes.append(f"auto: not shown, weights of more than {shown(look.MOST)} are not run")
    elif noises:
        samples = look.SAMPLES
        real = real_imported(function, samples) if config is None else real_builtin(config, samples)
        like = next((each for each in steps if each.label.startswith("actnn")), steps[0])
        for noise in noises:
            name = f"auto:noise={noise:g}"
            steps.append(look.scaled(like, steps[0], name, look.kept(real, noise)))
        notes.append(look.ASSUMED)
    return Plan(target, steps, batches, notes)


def _limit(memory: str | None, device: str | None) -> int | None:
    """Bytes that were asked for, or those of a device that was named and is here."""
    if memory is not None:
        return read_bytes(memory)
    on = accelerator.named(device or "cpu")
    return accelerator.total_memory(on) if accelerator.count(on) else None


def _noise(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"noises are numbers separated by commas, got {text!r}") from None
    resolve("auto", {"noise": value})  # says what is wrong with it
    return value


def _steps(
    target: Target, chosen: list[tuple[str, dict[str, Any]]], limit: int | None, fake: Any
) -> tuple[list[Step], dict[str, int]]:
    steps, batches = [], {}
    named = [(PLAIN, None), *((label(*each), resolve(*each)) for each in chosen)]
    for name, method in named:
        steps.append(step(target, name, method, target.batch, fake))
        if limit is not None:

            def whole(samples: int, name: str = name, method: Any = method) -> int:
                return step(target, name, method, samples, fake).whole

            batches[name] = largest(whole, limit, target.batch)
    return steps, batches


def held(target: Target) -> Table:
    """What is there whatever the batch."""
    made = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for name in ("weights", "gradients", f"state of {target.optimizer}"):
        made.add_column(name, justify="right")
    made.add_row(*(shown(n) for n in (target.weights, target.gradients, target.state)))
    return made


def summary(found: Plan) -> Table:
    """A line for each method; the first is plain."""
    made = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    made.add_column(f"batch {found.target.batch}", overflow="fold")
    columns = ["saved", "ratio", "live peak", "whole step"]
    columns += ["largest batch"] if found.batches else []
    for name in columns:
        made.add_column(name, justify="right")
    for each in found.steps:
        row = [shown(each.stored_bytes), f"{each.ratio:.2f}×"]
        row += [shown(each.live_peak), shown(each.whole)]
        row += [str(found.batches.get(each.label, "–"))] if found.batches else []
        made.add_row(each.label, *row)
    return made


def plain_values(found: Plan) -> dict[str, Any]:
    """The same as JSON-ready values."""
    target = found.target
    told = [
        {**asdict(each), "ratio": each.ratio, "largest_batch": found.batches.get(each.label)}
        for each in found.steps
    ]
    return {
        "name": target.name,
        "torch": torch.__version__,
        "device": target.device,
        "batch": target.batch,
        "weights": target.weights,
        "gradients": target.gradients,
        "optimizer_state": target.state,
        "steps": told,
        "notes": found.notes,
    }


def page(found: Plan) -> str:
    """The same as an HTML file."""
    target = found.target
    cards = [
        {
            "name": f"Kept for backward, {each.label}",
            "value": shown(each.stored_bytes),
            "more": f"{each.ratio:.2f}× smaller · whole step {shown(each.whole)}"
            + _largest_said(found.batches.get(each.label)),
            "label": each.label,
        }
        for each in found.steps
    ]
    facts = ["predicted from shapes", f"weights {shown(target.weights)}"]
    facts += [f"gradients {shown(target.gradients)}"]
    facts += [f"{target.optimizer} {shown(target.state)}", f"torch {torch.__version__}"]
    runs = [{"label": each.label, "cost": _cost(each, each.modules)} for each in found.steps]
    ops = [{"label": each.label, "cost": _cost(each, each.ops)} for each in found.steps]
    return html.profile(target.name, facts, cards, runs, ops)


def _largest_said(batch: int | None) -> str:
    return "" if batch is None else f" · largest batch {batch}"


def _cost(each: Step, shown: Sequence[Any]) -> dict[str, Any]:
    measured = not each.label.startswith("auto")  # auto's curve is not known
    curve = {"points": each.curve.points, "phases": each.curve.phases}
    return {
        "modules": [vars(share) for share in shown],
        "curve": curve if measured else {"points": [], "phases": []},
    }
