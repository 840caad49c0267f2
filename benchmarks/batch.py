"""The largest batch that truly runs in the memory that plain PyTorch needs for a usual one.

    python benchmarks/batch.py                       # hours on two cores
    python benchmarks/batch.py --network resnet50
    python benchmarks/batch.py --quick               # does it run? writes nothing

The limit is the resident memory of a process that trains plainly at batch 16 (decoder: 4); under it
`actzip max-batch` searches each method's largest batch by real steps in fresh processes. What a
network has in the results is left out the next time. Writes results/batch.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Annotated, Any

import typer

from actzip.tasks.config import make
from actzip.tasks.max_batch_search import attempt
from parts.machine import about
from parts.results import FOLDER, write

METHODS = "plain,checkpoint,actnn,auto"
TRANSFORMERS = "plain,checkpoint,actnn:bits=3,auto"
_PICTURES: dict[str, Any] = {"task": "classify", "data": "cifar10", "side": 224}
#: the batch that sets the limit, the methods, and the network
NETWORKS: dict[str, tuple[int, str, dict[str, Any]]] = {
    "resnet50": (16, METHODS, {**_PICTURES, "model": "resnet50", "channels_last": True}),
    "resnet152": (16, METHODS, {**_PICTURES, "model": "resnet152", "channels_last": True}),
    "densenet161": (16, METHODS, {**_PICTURES, "model": "densenet161", "channels_last": True}),
    "vit_s16": (
        16,
        TRANSFORMERS,
        {
            **_PICTURES,
            "model": "vit",
            "sizes": {"patch": 16, "width": 384, "depth": 12, "heads": 6},
        },
    ),
    "gpt": (
        4,
        TRANSFORMERS,
        {
            "task": "lm",
            "data": "shakespeare",
            "model": "decoder",
            "length": 256,
            "sizes": {"width": 768, "depth": 12, "heads": 12},
        },
    ),
}
QUICK: tuple[int, str, dict[str, Any]] = (
    2,
    "plain,actnn",
    {"task": "classify", "data": "digits", "model": "resnet8"},
)


def options(settings: dict[str, Any]) -> list[str]:
    """As the command line takes them."""
    found = []
    for name, value in settings.items():
        if name == "sizes":
            found += [
                word for size in value.items() for word in ("--size", "=".join(map(str, size)))
            ]
        elif value is True:
            found.append(f"--{name.replace('_', '-')}")
        else:
            found += [f"--{name}", str(value)]
    return found


def measure(batch: int, methods: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The limit, and what `actzip max-batch` says under it."""
    plain = attempt(make(**settings, batch=batch, method="plain"), limit=1 << 62)
    if plain.resident_peak is None:
        raise RuntimeError(f"plain does not run at batch {batch}: {plain.why}")
    limit = plain.resident_peak * 101 // 100  # the same steps differ by as much
    command = [sys.executable, "-m", "actzip", "max-batch", "--json", "--memory", f"{limit}B"]
    command += ["--start", str(batch), "--methods", methods, *options(settings)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(said)
    return found


def main(
    network: Annotated[list[str] | None, typer.Option(help="May be given several times.")] = None,
    quick: Annotated[bool, typer.Option(help="A toy network, nothing is kept.")] = False,
) -> None:
    """Search the largest batches."""
    if quick:
        batch, methods, settings = QUICK
        show("quick", measure(batch, methods, settings))
        return
    out = FOLDER / "batch.json"
    for name in network or NETWORKS:
        if name not in NETWORKS:
            raise typer.BadParameter(f"unknown network {name!r}; there are {', '.join(NETWORKS)}")
        known = json.loads(out.read_text())["networks"] if out.exists() else {}
        if name in known:
            continue
        found = measure(*NETWORKS[name])
        show(name, found)
        write(out, {"networks": {**known, name: {"about": about(), **found}}})


def show(name: str, found: dict[str, Any]) -> None:
    for each in found["found"]:
        tries = len(each["tries"])
        print(f"{name}, {each['label']}: batch {each['batch']}, {tries} tries", flush=True)


if __name__ == "__main__":
    typer.run(main)
