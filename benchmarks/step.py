"""One training step of usual networks: time and memory, plain PyTorch against the alternatives.

    python benchmarks/step.py                        # everything, most of an hour on two cores
    python benchmarks/step.py --model resnet50 --variant plain --variant auto
    python benchmarks/step.py --missing              # only what is not in the results yet
    python benchmarks/step.py --tiny --steps 3       # does it run? seconds

Real data, a fresh batch in every step, malloc as it is. Each (model, variant) runs in a fresh
process, several times in turn with the other variants. Looks of methods that learn are among the
steps: the mean over all steps has them in it, the median has not. Bytes are above weights and
optimizer state. Prints a table with ratios to plain and writes results/step.json (not when tiny).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import statistics
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import actzip
from actzip import methods
from actzip.memory.fresh_process import call_fresh
from actzip.memory.measure import measure, reset_resident_peak, resident, size
from actzip.tasks.checkpointing import recompute_blocks
from actzip.tasks.config import BASELINES
from actzip.tasks.method_spec import parse
from parts.machine import about
from parts.networks import NETWORKS, build
from parts.results import FOLDER, write

#: transformers get ActNN's three bits: two are too few for them (docs/methods/actnn.md)
TRANSFORMERS = ("vit_s16", "gpt", "minilm_lora")
POINTS = 300  #: of the curve of live bytes over a step


def variants(model: str) -> tuple[str, ...]:
    """What is measured of a model."""
    actnn = "actnn:bits=3" if model in TRANSFORMERS else "actnn"
    return ("plain", "checkpoint", "bf16", "lossless", actnn, "auto")


@dataclass(frozen=True)
class Job:
    """One measurement: what the fresh process is given."""

    model: str
    variant: str
    batch: int
    warmup: int
    steps: int
    threads: int
    tiny: bool = False


@dataclass(frozen=True)
class Outcome:
    """What one process measured."""

    seconds: list[float]  #: of each step after the warm-up
    loss: float  #: of the last
    raw_bytes: int | None  #: what autograd would keep; None where no session can count it
    stored_bytes: int | None  #: what was kept instead
    live_peak: int  #: of one step
    resident_growth: int  #: from before the first step
    curve: list[tuple[float, int]]  #: live bytes over that step: (share of its time, bytes)
    backend: str | None
    metrics: dict[str, Any]  #: of the session


class Stepper:
    """Model, optimizer and variant, ready to step through the batches."""

    def __init__(self, job: Job) -> None:
        self.network = build(job.model, job.batch, job.tiny)
        self.model, self.optimizer = self.network.model, self.network.optimizer
        self.bf16 = job.variant == "bf16"
        if job.variant == "checkpoint" and not recompute_blocks(self.model):
            raise ValueError(f"no blocks of {job.model} are known; see tasks/checkpointing.py")
        self.session = attach(job.variant, self.model, self.optimizer)
        self.taken = 0
        self.loss = 0.0

    def step(self) -> None:
        x, y = self.network.batches[self.taken % len(self.network.batches)]
        precision = torch.autocast("cpu", torch.bfloat16) if self.bf16 else contextlib.nullcontext()
        with precision:
            loss: Tensor = self.network.loss(self.model, x, y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.loss = loss.item()
        self.taken += 1

    def timed(self, steps: int) -> list[float]:
        """Seconds of each step."""
        seconds = []
        for _ in range(steps):
            began = time.perf_counter()
            self.step()
            seconds.append(time.perf_counter() - began)
        return seconds


def attach(variant: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    """The variant's session; None where it needs none."""
    name, options = parse(variant)
    if name in BASELINES:
        return None
    method = methods.METHODS[name](**options)
    return actzip.compress(model, method=method, optimizer=optimizer)


def run(job: Job) -> Outcome:
    """Measure one job; called in a fresh process."""
    torch.set_num_threads(job.threads)
    stepper = Stepper(job)
    low = reset_resident_peak()
    stepper.timed(job.warmup)
    seconds = stepper.timed(job.steps)
    high = resident("VmHWM")
    if low is None or high is None:
        raise RuntimeError("this benchmark reads resident bytes from /proc: it needs Linux")
    gc.collect()  # the profiler counts only releases of memory whose allocation it saw
    with measure() as found:
        stepper.step()
    loss = stepper.loss
    raw, stored, backend = _counted(job, stepper)
    return Outcome(
        seconds=seconds,
        loss=loss,
        raw_bytes=raw,
        stored_bytes=stored,
        live_peak=found.live_peak,
        resident_growth=max(0, high - low),
        curve=_thinned(found.timeline, found.seconds),
        backend=backend,
        metrics={} if stepper.session is None else stepper.session.metrics(),
    )


def _counted(job: Job, stepper: Stepper) -> tuple[int | None, int | None, str | None]:
    """Bytes that plain PyTorch would keep, bytes that are kept, and the kernels."""
    if job.variant == "plain":  # counted by a session that changes no value
        session = attach("lossless", stepper.model, stepper.optimizer)
        with warnings.catch_warnings():  # that it compresses nothing is no news here
            warnings.simplefilter("ignore", actzip.ActzipWarning)
            stepper.step()
        raw = session.stats().raw_bytes
        return raw, raw, None
    if stepper.session is None:
        return None, None, None
    stats = stepper.session.stats()
    return stats.raw_bytes, stats.stored_bytes, stats.backend


def _thinned(timeline: list[tuple[float, int]], seconds: float) -> list[tuple[float, int]]:
    """The largest value of each of POINTS equal parts of the time."""
    highest: dict[int, int] = {}
    level = 0
    for when, nbytes in timeline:
        at = min(POINTS - 1, int(POINTS * when / seconds))
        highest[at] = max(highest.get(at, level), nbytes)
        level = nbytes
    return [(at / POINTS, nbytes) for at, nbytes in sorted(highest.items())]


def together(found: list[Outcome]) -> dict[str, Any]:
    """The outcomes of the same job's processes as one result."""
    steps = [each.seconds for each in found]
    return {
        **asdict(found[0]),
        "seconds": steps,
        "median_seconds": statistics.median(statistics.median(each) for each in steps),
        "mean_seconds": statistics.fmean(statistics.fmean(each) for each in steps),
        "best_seconds": min(map(min, steps)),
        "resident_growth": max(each.resident_growth for each in found),
    }


def call_with(environment: dict[str, str], job: Job) -> Outcome:
    """Run it in a fresh process that starts with these variables as well."""
    os.environ.update(environment)
    try:
        return call_fresh(run, job)
    finally:
        for name in environment:
            del os.environ[name]


def table(model: str, results: list[dict[str, Any]]) -> Table:
    made = Table(title=model)
    for name in ("variant", "median", "mean", "best", "saved", "live peak", "resident growth"):
        made.add_column(name, justify="left" if name == "variant" else "right")
    base = next((r for r in results if r["variant"] == "plain"), None)

    def ratio(r: dict[str, Any], key: str) -> str:
        return f"{r[key]:.3f} s" + (f" ({r[key] / base[key]:.2f}×)" if base else "")

    def less(value: int | None, plain: int | None) -> str:
        if value is None:
            return "-"
        return size(value) + (f" (1/{plain / value:.2f})" if plain and value else "")

    for r in results:
        made.add_row(
            r["variant"],
            *(ratio(r, f"{name}_seconds") for name in ("median", "mean", "best")),
            less(r["stored_bytes"], base and base["raw_bytes"]),
            less(r["live_peak"], base and base["live_peak"]),
            less(r["resident_growth"], base and base["resident_growth"]),
        )
    return made


def main(
    model: Annotated[list[str] | None, typer.Option(help="May be given several times.")] = None,
    variant: Annotated[list[str] | None, typer.Option(help="May be given several times.")] = None,
    batch: Annotated[int, typer.Option(min=1)] = 16,
    steps: Annotated[int, typer.Option(min=1, help="Timed steps, after the warm-up.")] = 10,
    warmup: Annotated[int, typer.Option(min=0, help="Steps before them.")] = 6,
    repeats: Annotated[int, typer.Option(min=1, help="Processes, one after the other.")] = 2,
    threads: Annotated[int, typer.Option(min=1)] = torch.get_num_threads(),
    tiny: Annotated[bool, typer.Option(help="Toy sizes: to see that it runs.")] = False,
    missing: Annotated[bool, typer.Option(help="Leave out models that have results.")] = False,
    out: Annotated[Path | None, typer.Option(help="Else results/step.json; none if tiny.")] = None,
) -> None:
    """Measure every chosen model with every chosen variant."""
    for name in model or ():
        if name not in NETWORKS:
            raise typer.BadParameter(f"unknown model {name!r}; there are {', '.join(NETWORKS)}")
    if out is None and not tiny:
        out = FOLDER / "step.json"
    console = Console(width=None if Console().is_terminal else 140)
    for name in model or NETWORKS:
        earlier = json.loads(out.read_text())["results"] if out and out.exists() else []
        if missing and any(r["model"] == name for r in earlier):
            continue
        jobs = [
            Job(name, each, batch, warmup, steps, threads, tiny)
            for each in variant or variants(name)
        ]
        found: dict[Job, list[Outcome]] = {job: [] for job in jobs}
        for _ in range(repeats):
            for job in jobs:
                found[job].append(call_with({}, job))
        results = [
            {**asdict(job), "about": about(), **together(each)} for job, each in found.items()
        ]
        console.print(table(name, results))
        if out is not None:
            kept = [r for r in earlier if r["model"] != name]
            write(out, {"results": kept + results})


if __name__ == "__main__":
    typer.run(main)
