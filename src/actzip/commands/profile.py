"""``actzip profile``: where a model's activation bytes are, before and after a method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from actzip.commands import options
from actzip.commands.options import option
from actzip.memory.measure import size as shown
from actzip.methods import METHODS, resolve
from actzip.report import html
from actzip.report.modules import Share
from actzip.tasks.config import make
from actzip.tasks.method_spec import label
from actzip.tasks.profile import Profile, compressed, plain
from actzip.tasks.profile_target import Subject, builtin, imported
from actzip.tasks.ranks import alone
from actzip.tasks.run_folder import replace_text

PLAIN = "plain"
_MOST = 20  #: modules of the table; the page has them all


def profile(
    context: typer.Context,
    function: Annotated[
        str | None,
        typer.Argument(help="package.module:function that returns (model, inputs)."),
    ] = None,
    methods: options.Methods = "actnn",
    task: options.Task = None,
    data: options.Data = None,
    model: options.Model = None,
    size: options.Size = None,
    lora: options.Lora = None,
    batch: options.Batch = None,
    channels_last: options.ChannelsLast = None,
    side: options.Side = None,
    length: options.Length = None,
    void: options.Void = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    strict: options.Strict = None,
    threads: options.Threads = None,
    device: options.Device = None,
    out: Annotated[Path | None, option("Write the same as a page with pictures.")] = None,
    as_json: options.Json = False,
) -> None:
    """Show where activation bytes are, per module and per op, before and after methods.

    One forward and backward pass with each, no training. Without a function: a built-in model.
    """
    with options.refusals():
        alone("profile")
        options.check_file(out)
        chosen = _chosen(context.params["methods"])
        subject = _subject(function, context.params)
        found = [plain(subject)]
        found += [compressed(subject, label(*each), *each) for each in chosen]
    console = options.console(as_json)
    console.print(subject.name, markup=False)
    console.print(summary(found))
    console.print(shares("module", found, [each.modules for each in found]))
    console.print(shares("op", found, [each.ops for each in found]))
    if out is not None:
        replace_text(out, page(subject.name, found))
        console.print(f"report: {out}", markup=False, soft_wrap=True)
    if as_json:
        told = [{**asdict(each), "ratio": each.ratio} for each in found]
        options.print_json({"name": subject.name, "torch": torch.__version__, "found": told})


def _chosen(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The methods to show beside plain, which is always shown first."""
    chosen = options.methods(text)
    for name, own in chosen:
        if name not in (PLAIN, *METHODS):
            raise ValueError(
                f"profile shows {', '.join((PLAIN, *METHODS))}, got {name!r}; "
                "`actzip compare` also has checkpoint and bf16"
            )
        resolve("lossless" if name == PLAIN else name, own)  # says what is wrong with options
    return [each for each in chosen if each[0] != PLAIN]


def _subject(function: str | None, params: dict[str, Any]) -> Subject:
    given = options.given(params)
    threads = given.pop("threads", None)
    if threads is not None:
        make(threads=threads)  # says what is wrong with it
        torch.set_num_threads(threads)
    if function is None:
        return builtin(make(**given))
    if given:
        raise ValueError(f"{', '.join(given)}: of a built-in model, but {function} was given")
    return imported(function)


def summary(found: Sequence[Profile]) -> Table:
    """A line for each method; the first is plain."""
    made = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    made.add_column("method", overflow="fold")
    for name in ("saved", "ratio", "live peak", "of plain's"):
        made.add_column(name, justify="right")
    for each in found:
        made.add_row(
            each.label,
            shown(each.stored_bytes),
            f"{each.ratio:.2f}×",
            shown(each.live_peak),
            f"{each.live_peak / max(1, found[0].live_peak):.0%}",
        )
    return made


def shares(what: str, found: Sequence[Profile], kinds: Sequence[list[Share]]) -> Table:
    """Bytes of each module or op: as plain keeps them, then with each method."""
    made = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    made.add_column(what, overflow="fold")
    for each in found:
        made.add_column(each.label, justify="right")
    stored = [{share.name: share.stored_bytes for share in kind} for kind in kinds]
    names = sorted(dict.fromkeys(name for kept in stored for name in kept), key=_largest(stored))
    for name in names[:_MOST]:
        made.add_row(name, *(shown(kept.get(name, 0)) for kept in stored))
    rest = names[_MOST:]
    if rest:
        sums = (sum(kept.get(name, 0) for name in rest) for kept in stored)
        made.add_row(f"{len(rest)} others", *(shown(each) for each in sums))
    return made


def _largest(stored: list[dict[str, int]]) -> Any:
    return lambda name: [-kept.get(name, 0) for kept in stored]


def page(name: str, found: Sequence[Profile]) -> str:
    """The same as an HTML file."""
    base = found[0]
    cards = [
        {
            "name": f"Kept for backward, {each.label}",
            "value": shown(each.stored_bytes),
            "more": f"{each.ratio:.2f}× smaller · live peak {shown(each.live_peak)}, "
            f"{each.live_peak / max(1, base.live_peak):.0%} of plain's",
            "label": each.label,
        }
        for each in found
    ]
    facts = ["one forward and backward pass", f"torch {torch.__version__}"]
    runs = [{"label": each.label, "cost": _cost(each)} for each in found]
    ops = [{"label": each.label, "cost": {"modules": _cost(each)["ops"]}} for each in found]
    return html.profile(name, facts, cards, runs, ops)


def _cost(each: Profile) -> dict[str, Any]:
    return {
        "modules": [vars(share) for share in each.modules],
        "ops": [vars(share) for share in each.ops],
        "curve": {"points": each.curve.points, "phases": each.curve.phases},
    }
