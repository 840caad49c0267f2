"""One training step of four models: time and memory, plain PyTorch against the alternatives.

    python benchmarks/step.py                        # everything, many minutes
    python benchmarks/step.py --model resnet50 --variant plain --variant group2
    python benchmarks/step.py --tiny --steps 3       # does it run? seconds

Each (model, variant) runs in fresh processes, one after the other with those of the other variants:
the same step is up to a tenth slower in one process than in the next, so the best of several
counts. Prints a table with ratios to plain and writes results/step.json (not when tiny).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import actzip
from actzip.memory.fresh_process import call_fresh
from actzip.memory.measure import measure, reset_resident_peak, resident, size
from actzip.tasks.models.decoder import Decoder
from actzip.tasks.models.resnet import ResNet, resnet50
from actzip.tasks.models.vgg import VGG, VGG16
from actzip.tasks.models.vit import ViT

#: _cl: the same in channels_last, the layout in which oneDNN needs the least scratch
MODELS = ("resnet50", "resnet50_cl", "vgg16", "vit_s16", "gpt")
VARIANTS = ("plain", "checkpoint", "bf16", "lossless", "group2")
WARMUP = 6  #: steps that are not timed; the first few of a process are slower
#: How malloc gives memory back decides a third of plain PyTorch's time, and by itself it changes
#: its mind from step to step. So times are taken with a malloc that keeps memory, for every
#: variant, and resident peaks in a second process with malloc as it is; times there, too.
KEEPING = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}


@dataclass(frozen=True)
class Job:
    """One measurement: what the fresh process is given."""

    model: str
    variant: str
    batch: int
    steps: int
    threads: int
    tiny: bool
    warmup: int
    repeats: int


@dataclass(frozen=True)
class Outcome:
    """What one job measured; bytes except for the times."""

    median_seconds: float
    best_seconds: float
    loss: float  #: after all steps: equal to plain's where the variant is exact
    raw_bytes: int | None  #: what autograd would keep; None where no session can count it
    stored_bytes: int | None  #: what was kept instead
    held_bytes: int  #: live tensors between forward and backward, counted as the next
    live_peak: int  #: of the second step, above model, inputs and optimizer state
    backend: str | None
    resident_peak: int = 0  #: of the whole process
    resident_growth: int = 0  #: above the level before the first step
    as_it_is_seconds: float = 0.0  #: the best step there, with malloc as it is
    each_best: list[float] = field(default_factory=list)  #: `best_seconds` of each process
    each_as_it_is: list[float] = field(default_factory=list)


def build(job: Job) -> tuple[nn.Module, Tensor, Tensor]:
    """The model, a batch and its targets; the same for every variant."""
    torch.manual_seed(0)
    side = 32 if job.tiny else 224
    images = torch.randn(job.batch, 3, side, side)
    labels = torch.randint(0, 10, (job.batch,))
    if job.model.startswith("resnet50"):
        model = resnet50(width=4 if job.tiny else 64)
        if job.model.endswith("_cl"):
            last = torch.channels_last
            return model.to(memory_format=last), images.to(memory_format=last), labels
        return model, images, labels
    if job.model == "vgg16":
        return (VGG(((8,), (8,)), hidden=16) if job.tiny else VGG(VGG16)), images, labels
    if job.model == "vit_s16":
        return (ViT(32, 8, 16, 2, 2) if job.tiny else ViT()), images, labels
    vocabulary, length = (64, 16) if job.tiny else (8192, 256)
    ids = torch.randint(0, vocabulary, (job.batch, length + 1))
    shape = (16, 2, 2) if job.tiny else (768, 12, 12)
    return Decoder(vocabulary, length, *shape), ids[:, :-1].clone(), ids[:, 1:].clone()


class Checkpointed(nn.Module):
    """A block whose inside is computed again in backward instead of being kept."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = checkpoint(self.block, x, use_reentrant=False)
        return out


def checkpoint_blocks(model: nn.Module) -> None:
    """Wrap each residual block, VGG stage or transformer block of `model`."""
    if isinstance(model, ResNet):
        rows = [stage for stage in model.stages if isinstance(stage, nn.Sequential)]
    elif isinstance(model, VGG):
        rows = [model.stages]
    elif isinstance(model, ViT | Decoder):
        rows = [model.blocks]
    else:
        raise TypeError(f"no blocks are known for {type(model).__name__}; add a case here")
    for row in rows:
        for index, block in enumerate(row):
            row[index] = Checkpointed(block)


class Stepper:
    """Model, optimizer and variant, ready to step on one batch."""

    def __init__(self, job: Job) -> None:
        self.model, self.x, self.y = build(job)
        self.bf16 = job.variant == "bf16"
        if job.variant == "checkpoint":
            checkpoint_blocks(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3, momentum=0.9)
        self.session = attach(job.variant, self.model, self.optimizer)
        self.loss = 0.0

    def forward(self) -> Tensor:
        precision = torch.autocast("cpu", torch.bfloat16) if self.bf16 else contextlib.nullcontext()
        with precision:
            logits = self.model(self.x)
            return F.cross_entropy(logits.flatten(0, -2), self.y.flatten())

    def step(self) -> float:
        loss = self.forward()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def timed(self, steps: int) -> list[float]:
        """Seconds of each step; `loss` is that of the last."""
        seconds = []
        for _ in range(steps):
            began = time.perf_counter()
            self.loss = self.step()
            seconds.append(time.perf_counter() - began)
        return seconds


def attach(variant: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    """The variant's session; None where it needs none."""
    if variant == "lossless":
        return actzip.compress(model, method="lossless", optimizer=optimizer)
    if variant == "group2":
        method = actzip.Fixed(
            linear=actzip.codecs.Group(bits=2, zero=True), nonlinear=actzip.codecs.Group(bits=2)
        )
        return actzip.compress(model, method=method, optimizer=optimizer)
    return None


def run(job: Job) -> Outcome:
    """Measure one job; called in a fresh process."""
    torch.set_num_threads(job.threads)
    stepper = Stepper(job)
    seconds = stepper.timed(job.warmup + job.steps)[job.warmup :]
    loss = stepper.loss
    if stepper.session is not None:
        stepper.session.remove()
    del stepper
    return Outcome(
        median_seconds=statistics.median(seconds),
        best_seconds=min(seconds),
        loss=loss,
        **trace(job),
    )


def as_it_is(job: Job) -> dict[str, Any]:
    """Resident bytes of a few steps, and their time; called in a fresh process."""
    torch.set_num_threads(job.threads)
    stepper = Stepper(job)
    low = reset_resident_peak()
    stepper.timed(job.warmup)
    high = resident("VmHWM")
    if low is None or high is None:
        raise RuntimeError("this benchmark reads resident bytes from /proc: it needs Linux")
    seconds = stepper.timed(job.steps)
    return {
        "resident_peak": high,
        "resident_growth": max(0, high - low),
        "as_it_is_seconds": min(seconds),
    }


def call_with(environment: dict[str, str], function: Callable[[Job], Any], job: Job) -> Any:
    """Call it in a fresh process that starts with these variables as well."""
    os.environ.update(environment)
    try:
        return call_fresh(function, job)
    finally:
        for name in environment:
            del os.environ[name]


def both(job: Job) -> Outcome:
    """Times in a process whose malloc keeps memory; in one with malloc as it is resident bytes, and
    times once more."""
    timed: Outcome = call_with(KEEPING, run, job)
    return replace(timed, **call_fresh(as_it_is, job))


def together(found: list[Outcome]) -> Outcome:
    """One outcome of the same job's several processes."""
    best = [each.best_seconds for each in found]
    as_it_was = [each.as_it_is_seconds for each in found]
    return replace(
        found[0],
        median_seconds=statistics.median(each.median_seconds for each in found),
        best_seconds=min(best),
        resident_peak=max(each.resident_peak for each in found),
        resident_growth=max(each.resident_growth for each in found),
        as_it_is_seconds=min(as_it_was),
        each_best=best,
        each_as_it_is=as_it_was,
    )


def trace(job: Job) -> dict[str, Any]:
    """The exact figures, from untimed steps of a model of its own."""
    stepper = Stepper(job)
    stepper.step()  # from the second step on optimizer state is there
    gc.collect()  # the profiler counts only releases of memory whose allocation it saw
    with measure() as whole:
        with measure() as forward:
            loss = stepper.forward()
        loss.backward()
        del loss
        stepper.optimizer.step()
        stepper.optimizer.zero_grad()
    session, plain = stepper.session, job.variant == "plain"
    if plain:  # what PyTorch keeps, counted by a session that changes no value
        session = attach("lossless", stepper.model, stepper.optimizer)
        with warnings.catch_warnings():  # that it compresses nothing is no news here
            warnings.simplefilter("ignore", actzip.ActzipWarning)
            stepper.step()
    stats = None if session is None else session.stats()
    return {
        "held_bytes": forward.live_end,
        "live_peak": whole.live_peak,
        "raw_bytes": stats and stats.raw_bytes,
        "stored_bytes": stats and (stats.raw_bytes if plain else stats.stored_bytes),
        "backend": None if plain or stats is None else stats.backend,
    }


def times(value: float, plain: float | None) -> str:
    return f"{value:.3f} s" + ("" if plain is None else f" ({value / plain:.2f}×)")


def less(value: int | None, plain: int | None) -> str:
    """Bytes, and how many times less than plain's they are."""
    if value is None:
        return "-"
    return size(value) + (f" (1/{plain / value:.2f})" if plain and value else "")


def table(model: str, outcomes: dict[str, Outcome]) -> Table:
    made = Table(title=model)
    measured = ("median", "best", "malloc as it is", "saved", "held", "live peak", "resident peak")
    for name in ("variant", *measured):
        made.add_column(name, justify="left" if name == "variant" else "right")
    for variant, got in outcomes.items():
        base = None if variant == "plain" else outcomes.get("plain")
        made.add_row(
            variant,
            times(got.median_seconds, None if base is None else base.median_seconds),
            times(got.best_seconds, None if base is None else base.best_seconds),
            times(got.as_it_is_seconds, None if base is None else base.as_it_is_seconds),
            less(got.stored_bytes, None if variant == "plain" else got.raw_bytes),
            less(got.held_bytes, None if base is None else base.held_bytes),
            less(got.live_peak, None if base is None else base.live_peak),
            less(got.resident_peak, None if base is None else base.resident_peak),
        )
    return made


def settings(job: Job) -> dict[str, Any]:
    """All that a reader needs to know to compare with figures of their own."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": job.threads,
        "tiny": job.tiny,
        "malloc": {"times": KEEPING, "resident, as_it_is_seconds": "as it is"},
    }


def chosen(names: list[str] | None, allowed: tuple[str, ...], what: str) -> list[str]:
    for name in names or ():
        if name not in allowed:
            raise typer.BadParameter(f"unknown {what} {name!r}; allowed are {', '.join(allowed)}")
    return list(dict.fromkeys(names or allowed))


def kept(out: Path | None, measured: list[str]) -> list[dict[str, Any]]:
    """Earlier results of the models that are not measured this time."""
    if out is None or not out.exists():
        return []
    earlier: list[dict[str, Any]] = json.loads(out.read_text())["results"]
    return [result for result in earlier if result["model"] not in measured]


def main(
    model: Annotated[list[str] | None, typer.Option(help="May be given several times.")] = None,
    variant: Annotated[list[str] | None, typer.Option(help="May be given several times.")] = None,
    batch: Annotated[int, typer.Option(min=1)] = 16,
    steps: Annotated[int, typer.Option(min=1, help="Timed steps, after the warm-up.")] = 5,
    warmup: Annotated[int, typer.Option(min=0, help="Steps before them.")] = WARMUP,
    repeats: Annotated[int, typer.Option(min=1, help="Processes, one after the other.")] = 3,
    threads: Annotated[int, typer.Option(min=1)] = torch.get_num_threads(),
    tiny: Annotated[bool, typer.Option(help="Toy sizes: to see that it runs.")] = False,
    out: Annotated[Path | None, typer.Option(help="Else results/step.json; none if tiny.")] = None,
) -> None:
    """Measure every chosen model with every chosen variant."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    variants = chosen(variant, VARIANTS, "variant")
    if out is None and not tiny:
        out = Path(__file__).parent / "results" / "step.json"
    results = kept(out, chosen(model, MODELS, "model"))
    for name in chosen(model, MODELS, "model"):
        jobs = {
            kind: Job(name, kind, batch, steps, threads, tiny, warmup, repeats) for kind in variants
        }
        found: dict[str, list[Outcome]] = {kind: [] for kind in variants}
        failed: dict[str, str] = {}
        for _ in range(repeats):
            for kind, job in jobs.items():
                if kind in failed:
                    continue
                try:
                    found[kind].append(both(job))
                except RuntimeError as error:
                    console.print(f"{name}, {kind}: {error}", markup=False)
                    failed[kind] = str(error).strip().splitlines()[-1]
        outcomes = {kind: together(each) for kind, each in found.items() if kind not in failed}
        results += [{**asdict(jobs[kind]), **asdict(got)} for kind, got in outcomes.items()]
        results += [{**asdict(jobs[kind]), "error": why} for kind, why in failed.items()]
        console.print(table(name, outcomes))
        if out is not None:
            text = json.dumps({"settings": settings(job), "results": results}, indent=1)
            out.write_text(text + "\n")
    if any("error" in result for result in results):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
