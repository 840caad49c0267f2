"""``actzip doctor``: what is there, whether it is right, and how fast, in one file to attach."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from actzip import accelerator
from actzip.commands import options
from actzip.commands.options import option
from actzip.doctor import codes, facts, timings
from actzip.doctor.finding import REPORT, Finding, examine
from actzip.memory.measure import size as shown
from actzip.tasks.ranks import alone
from actzip.tasks.run_folder import replace_text

FILE = Path("actzip-doctor.json")
_COMPARED = 50_000  #: elements of a tensor whose bytes are compared


def doctor(
    device: options.Device = None,
    quick: Annotated[
        bool, option("Small tensors and models: does it run? Its times say little.", "--quick")
    ] = False,
    out: Annotated[Path, option("The file to attach to a bug report.")] = FILE,
    as_json: options.Json = False,
) -> None:
    """Examine this machine: device, kernels, versions; promises, bytes; times of codecs and steps.

    Ends with 1 when anything is wrong. Without a device: a GPU if there is one, else the CPU.
    """
    console = options.console(as_json)
    with options.refusals():
        alone("doctor")
        options.check_file(out)
        chosen = accelerator.choose(device)
    size = timings.Size.small() if quick else timings.Size()
    about = facts.facts(chosen)
    _print_facts(about, console)
    found = [*facts.installation(about)]
    kit = codes.KIT[:6] if quick else codes.KIT
    found += _told(codes.promises(chosen, kit), "codecs keep their promises", console)
    elements = _COMPARED // 10 if quick else _COMPARED
    found += _told(codes.equal_bytes(chosen, elements), "the bytes of the reference", console)
    coded, steps, failed = _times(chosen, size, console)
    found += failed
    _print_findings(found, console)
    values = {
        "facts": about,
        "quick": quick,
        "findings": [each.plain() for each in found],
        "codecs": [each.plain() for each in coded],
        "steps": [each.plain() for each in steps],
    }
    replace_text(out, json.dumps(values, indent=1) + "\n")
    console.print(f"written: {out}", markup=False, soft_wrap=True)
    if as_json:
        options.print_json(values)
    if not all(each.sound for each in found):
        raise typer.Exit(1)


def _times(
    device: torch.device, size: timings.Size, console: Console
) -> tuple[list[timings.CodeTime], list[timings.StepTime], list[Finding]]:
    """What could be timed, printed, and what could not."""
    coded: list[timings.CodeTime] = []
    steps: list[timings.StepTime] = []
    failed = []
    for codec in timings.CODECS:
        act = lambda c=codec: coded.append(timings.codec_times(device, size, c))  # noqa: E731
        failed.append(examine(f"times of {codec!r}", REPORT, act))
    console.print(_code_table(coded))
    for name in timings.MODELS:
        act = lambda n=name: steps.extend(timings.step_times(device, size, n))  # noqa: E731
        failed.append(examine(f"steps of {name}", REPORT, act))
        accelerator.release(device)
    console.print(_step_table(steps))
    return coded, steps, [each for each in failed if not each.sound]


def _told(found: Iterable[Finding], what: str, console: Console) -> list[Finding]:
    kept = list(found)
    good, took = sum(each.sound for each in kept), sum(each.seconds for each in kept)
    said = f"{what}: {good} of {len(kept)} cases, {took:.1f} s"
    console.print(said, style="" if good == len(kept) else "bold red", highlight=False)
    return kept


def _print_facts(about: dict[str, Any], console: Console) -> None:
    versions = ", ".join(f"{k} {v}" for k, v in about["versions"].items() if v)
    memory = "" if about["memory"] is None else f", {shown(about['memory'])}"
    kernels = about["backend"]
    other = {form: given for form, given in about["forms"].items() if given != kernels}
    if about["instruction_set"] and kernels == "native":
        kernels += f" ({about['instruction_set']})"
    kernels += "".join(f"; {form}: {given}" for form, given in other.items())
    for line in (
        f"device: {about['device']} ({about['name']}{memory})",
        f"kernels: {kernels}",
        f"versions: {versions}; {about['system']}; {about['threads']} threads",
        *(f"set: {name}={value}" for name, value in about["settings"].items()),
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _print_findings(found: Iterable[Finding], console: Console) -> None:
    told = [each for each in found if each.detail]
    for each in told:
        mark = "note" if each.sound else "WRONG"
        lines = (f"{mark}: {each.what}: {each.detail}", f"  what to do: {each.advice}")
        for line in lines if each.advice else lines[:1]:
            style = "" if each.sound else "red"
            console.print(line, markup=False, highlight=False, soft_wrap=True, style=style)
    if all(each.sound for each in told):
        console.print("nothing wrong was found")


def _code_table(coded: list[timings.CodeTime]) -> Table:
    made = Table("codec", "of", "bits", box=SIMPLE_HEAD)
    for name in ("encode, ms", "copy_ / encode", "decode, ms", "copy_ / decode"):
        made.add_column(name, justify="right")
    for each in coded:
        made.add_row(each.codec, each.dtype, f"{each.bits_per_element:.2f}",
                     f"{each.encode_ms:.2f}", f"{each.encode_ratio:.2f}",
                     f"{each.decode_ms:.2f}", f"{each.decode_ratio:.2f}")  # fmt: skip
    return made


def _step_table(steps: list[timings.StepTime]) -> Table:
    made = Table("model", "method", "step", "× plain", "peak", "saved, ratio", box=SIMPLE_HEAD)
    for each in steps:
        made.add_row(each.model, each.method, f"{each.step_ms:.1f} ms", f"{each.times_plain:.2f}",
                     shown(each.peak_bytes), f"{each.ratio:.2f}×")  # fmt: skip
    return made
