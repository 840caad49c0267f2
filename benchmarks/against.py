"""This tree against another one: what a redesign costs, on one machine in one run.

    python benchmarks/against.py OTHER    # OTHER: the Python of a checkout with its library built

Both are measured in turns, each time in fresh processes, by the public interface that both have;
of each figure the best of all turns counts. Prints a table and writes results/against.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import torch.nn.functional as F
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import actzip
from actzip.codecs import BitMask, Bounded, Codec, Dual, Group, Index
from actzip.kernels.native import library
from actzip.tasks.models.resnet import resnet20
from parts.results import write

TURNS = 3
SETS = ("portable", "avx2", "avx512")
VALUES = 1 << 21
RESULTS = Path(__file__).parent / "results" / "against.json"


def best(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of each, in turns."""
    found = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            found[name] = min(found[name], time.perf_counter() - began)
    return found


def python_of_a_layer(
    layers: Callable[[int], nn.Module], backward: bool, **options: object
) -> float:
    """Microseconds over plain, by the difference between a long and a short network."""
    x, over = torch.randn(64, 8), {}
    for count in (8, 32):
        plain, watched = layers(count), layers(count)
        actzip.compress(watched, **options)  # type: ignore[arg-type]

        def run(model: nn.Module) -> None:
            y = model(x)
            if backward:
                y.sum().backward()

        took = best(
            {"plain": lambda m=plain: run(m), "session": lambda m=watched: run(m)},  # type: ignore[misc]
            500 if backward else 1500,
        )
        over[count] = took["session"] - took["plain"]
    return (over[32] - over[8]) / 24 * 1e6


def chain(layers: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers)))


def deeper(layers: int) -> nn.Module:
    return nn.Sequential(chain(layers))


def overhead() -> dict[str, float]:
    torch.set_num_threads(1)
    found = {
        "Python per op, nothing stored, children of the model, us": python_of_a_layer(
            chain, False, method="lossless"
        ),
        "Python per op, nothing stored, further down, us": python_of_a_layer(
            deeper, False, method="lossless"
        ),
    }
    for method in ("fixed", "lossless", "actnn"):
        took = python_of_a_layer(deeper, True, method=method, min_bytes=0)
        found[f"Python per layer, {method} stores all, us"] = took
    return found


def codecs() -> dict[str, float]:
    """With each instruction set that the machine has, but for the portable one."""
    torch.set_num_threads(2)
    torch.manual_seed(0)
    x = torch.randn(32, 64, 32, 32).relu()
    cases: list[tuple[Codec, Tensor]] = [
        *((Group(bits), x) for bits in (1, 2, 4, 8)),
        (Group(2, entropy=True), x),
        (Group(2), x.bfloat16()),
        (Dual(), x),
        (BitMask(), x),
        (Index(), F.max_pool2d(x, 2, return_indices=True)[1]),
        (Bounded(0.01), x),
        (Bounded(0.01, entropy=True), x),
    ]
    found = {}
    highest = library.set_isa_level(-1)
    for level in range(1, highest + 1):
        library.set_isa_level(level)
        for codec, values in cases:
            payload = codec.encode(values, seed=1)
            took = best(
                {
                    "encode": lambda c=codec, v=values: c.encode(v, seed=1),  # type: ignore[misc]
                    "decode": lambda c=codec, p=payload: c.decode(p),  # type: ignore[misc]
                },
                30,
            )
            name = f"{SETS[level]} {codec!r} {str(values.dtype)[6:]}"
            found.update({f"{name} {way}, ms": seconds * 1e3 for way, seconds in took.items()})
    return found


def steps() -> dict[str, float]:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    x, y = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
    runs: dict[str, Callable[[], object]] = {}
    for method in ("plain", "lossless", "fixed", "actnn"):
        model = resnet20()
        if method != "plain":
            actzip.compress(model, method=method)

        def run(model: nn.Module = model) -> None:
            model.zero_grad()
            F.cross_entropy(model(x), y).backward()

        for _ in range(3):
            run()
        runs[method] = run
    took = best(runs, 12)
    return {
        f"ResNet-20 step, {m} over plain": took[m] / took["plain"] for m in runs if m != "plain"
    }


def measured() -> dict[str, float]:
    warnings.simplefilter("ignore")
    return {**overhead(), **codecs(), **steps()}


def main(
    other: Annotated[str, typer.Argument(help="the Python of the other checkout")] = "",
    turns: int = TURNS,
) -> None:
    if not other:  # in a process of one of the two
        print(json.dumps(measured()))
        return
    found: dict[str, dict[str, float]] = {"other": {}, "this": {}}
    for _ in range(turns):
        for name, python in (("other", other), ("this", sys.executable)):
            ran = subprocess.run(
                [python, __file__], check=True, capture_output=True, text=True, env=dict(os.environ)
            )
            for key, value in json.loads(ran.stdout.splitlines()[-1]).items():
                found[name][key] = min(value, found[name].get(key, float("inf")))
    table = Table(title=f"Best of {turns} processes each")
    for column in ("", "other", "this", "this / other"):
        table.add_column(column, justify="left" if not column else "right")
    for key, value in found["this"].items():
        was = found["other"][key]
        table.add_row(key, f"{was:.2f}", f"{value:.2f}", f"{value / was:.2f}")
    Console().print(table)
    write(RESULTS, {"turns": turns, **found})


if __name__ == "__main__":
    typer.run(main)
