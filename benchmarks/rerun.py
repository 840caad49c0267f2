"""Everything that the docs show, measured again, in order: `make results`.

    python benchmarks/rerun.py                    # all; many hours on two cores
    python benchmarks/rerun.py --list             # what is there and what each needs
    python benchmarks/rerun.py --only step --only codecs

Stopped, the same command goes on with what is not done, as long as src/ is the same: what was
finished is kept in runs/rerun.json. Results of other commits are removed when their turn comes
(git has them), so that no file mixes two. Fast ones come first. Ends by writing the tables.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from parts.machine import commit
from parts.results import FOLDER, changed_lines

HERE = Path(__file__).parent
STATE = HERE.parent / "runs" / "rerun.json"
SEEDS = ("--seeds", "0,1,2,3,4")


@dataclass(frozen=True)
class Job:
    """A script with its options, and the files that it writes."""

    name: str
    command: tuple[str, ...]
    files: tuple[str, ...]
    need: str  #: what it takes on two cores


def _tasks(case: str, need: str) -> Job:
    file = f"{'' if case == 'train' else 'compare_'}{case}.json"
    return Job(case, ("tasks.py", "--case", case), (file,), need)


def _methods(*names: str) -> tuple[str, ...]:
    return tuple(word for name in names for word in ("--method", name))


def _compiled(model: str, *options: str) -> Job:
    command = ("compiled.py", "--model", model, *options, "--steps", "10")
    return Job(f"compiled_{model}", command, (f"compiled_{model}.json",), "15 minutes")


JOBS = (
    _tasks("train", "4 minutes"),
    Job("overhead", ("overhead.py",), ("overhead.json",), "5 minutes"),
    Job("codecs", ("codecs.py",), ("codecs.json",), "20 minutes"),
    Job("step", ("step.py", "--missing"), ("step.json",), "1 hour"),
    Job("batch", ("batch.py",), ("batch.json",), "3 hours"),
    Job("ratios", ("ratios.py",), ("ratios.json",), "15 minutes"),
    _compiled("gpt"),
    _compiled("resnet50", "--batch", "4"),
    Job("looks", ("looks.py",), ("looks.json",), "15 minutes"),
    Job("gpu_model", ("gpu_model.py",), ("gpu_model.json",), "10 minutes"),
    Job("frequency", ("frequency.py",), ("frequency.json",), "10 minutes"),
    Job("outliers", ("outliers.py",), ("outliers.json",), "10 minutes"),
    Job("entropy", ("entropy.py",), ("entropy.json",), "10 minutes"),
    Job("entropy_bits", ("entropy.py", "--bits"), ("entropy_bits.json",), "10 minutes"),
    Job("search", ("search.py",), ("search.json",), "10 minutes"),
    Job("sites_noise", ("sites.py",), ("sites_noise.json",), "2 minutes"),
    Job("sites", ("sites.py", "--train"), ("sites.json",), "30 minutes"),
    *(
        _tasks(case, "20 minutes")
        for case in ("cifar10", "detection", "segmentation", "reviews", "shakespeare")
    ),
    Job(
        "finetune",
        (
            *("accuracy.py", "--case", "reviews-minilm-lora", "--case", "reviews-minilm"),
            *(*_methods("plain", "auto"), *SEEDS, "--out", "benchmarks/results/finetune.json"),
        ),
        ("finetune.json",),
        "2 hours",
    ),
    Job("bounded", ("bounded_training.py",), ("bounded_training.json",), "4 hours"),
    Job("equal_noise", ("equal_noise.py",), ("equal_noise.json",), "4 hours"),
    Job(
        "accuracy",
        (
            *("accuracy.py", "--case", "cifar10-resnet20", "--case", "fashion-vit"),
            *("--case", "reviews-lstm", "--case", "reviews-bert"),
            *(*_methods("plain", "actnn:bits=2", "division", "comet", "acgc", "auto"), *SEEDS),
        ),
        ("accuracy.json",),
        "a day",
    ),
)


class Progress:
    """Which jobs are begun and done at a commit, in a file."""

    def __init__(self, path: Path, at: str, same: Callable[[str, str], bool]) -> None:
        self._path = path
        found = json.loads(path.read_text()) if path.exists() else {}
        going_on = bool(found) and same(found["commit"], at)
        self.commit: str = found["commit"] if going_on else at
        self.begun: list[str] = found["begun"] if going_on else []
        self.done: list[str] = found["done"] if going_on else []

    def begin(self, job: Job, folder: Path) -> None:
        """Remove what another commit has left, the first time."""
        if job.name not in self.begun:
            for file in job.files:
                (folder / file).unlink(missing_ok=True)
            self.begun.append(job.name)
            self._keep()

    def end(self, job: Job) -> None:
        self.done.append(job.name)
        self._keep()

    def _keep(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        said = {"commit": self.commit, "begun": self.begun, "done": self.done}
        self._path.write_text(json.dumps(said, indent=1) + "\n")


def same_source(old: str, new: str) -> bool:
    return changed_lines(old, new) == 0


def main(
    only: Annotated[list[str] | None, typer.Option(help="Names; default: all.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Run nothing.")] = False,
) -> None:
    """Run what is not done at this commit."""
    names = [job.name for job in JOBS]
    for name in only or ():
        if name not in names:
            raise typer.BadParameter(f"unknown name {name!r}; there are {', '.join(names)}")
    at = commit()
    if not at or at.endswith("+"):
        sys.exit("results name their commit: commit the changes in src/ first, then run this again")
    progress = Progress(STATE, at, same_source)
    failed = []
    for job in JOBS:
        if job.name not in (only or names):
            continue
        done = job.name in progress.done
        print(f"{job.name}: {'done' if done else job.need}", flush=True)
        if done or listed:
            continue
        progress.begin(job, FOLDER)
        script, *options = job.command
        command = [sys.executable, str(HERE / script), *options]
        if subprocess.run(command, cwd=HERE.parent).returncode:
            failed.append(job.name)
            continue
        progress.end(job)
    if listed:
        return
    for script in ("memory_figure.py", "tables.py"):
        subprocess.run([sys.executable, str(HERE / script)], check=not failed)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; the same command tries them again")


if __name__ == "__main__":
    typer.run(main)
