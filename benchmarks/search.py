"""How many bits are enough? AC-GC knows after one training; a search trains again and again.

    python benchmarks/search.py              # some ten minutes on one thread
    python benchmarks/search.py --quick      # does it run? writes nothing

On the digits: one AC-GC run; a grid of fixed bits (2, 4, …, 16, five seeds each, the fewest whose
mean accuracy is within 0.1 % of plain training); successive halving over the same bits (short runs
of all, the better half goes on for twice as long). Counts training time only. Prints a table and
writes results/search.json.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
import typer
from rich.console import Console
from rich.table import Table

import actzip
from actzip.codecs import FixedPoint
from actzip.tasks import digits
from actzip.tasks.models.resnet import cifar_resnet
from parts.results import write

RESULTS = Path(__file__).parent / "results" / "search.json"
GRID = (2, 4, 6, 8, 10, 12, 14, 16)
CLOSE = 0.001  #: of accuracy: as good as plain


@dataclass(frozen=True)
class Run:
    """One training: what it reached, what it stored, what it took."""

    accuracy: float
    bits: float  #: stored per element, over all saved tensors and steps
    seconds: float


def fixed(bits: int) -> actzip.Method:
    return actzip.Fixed(FixedPoint(bits, skip_zeros=True), FixedPoint(bits, skip_zeros=True))


def train(method: actzip.Method | None, epochs: int, seed: int, side: int, width: int) -> Run:
    split = digits.load(side)
    torch.manual_seed(seed)
    model = cifar_resnet(8, 10, 1, width)
    steps = epochs * (len(split.train_x) // 64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
    session = None if method is None else actzip.compress(model, method, optimizer=optimizer)
    rng, bits, began = torch.Generator().manual_seed(seed), [], time.perf_counter()
    for _ in range(epochs):
        for at in torch.randperm(len(split.train_x), generator=rng).split(64)[:-1]:
            optimizer.zero_grad()
            F.cross_entropy(model(split.train_x[at]), split.train_y[at]).backward()
            optimizer.step()
            schedule.step()
            if session is not None:
                bits.append(32 / session.stats().ratio)
    seconds = time.perf_counter() - began
    if session is not None:
        session.remove()
    model.eval()
    with torch.no_grad():
        right = (model(split.test_x).argmax(1) == split.test_y).float().mean()
    return Run(float(right), statistics.fmean(bits) if bits else 32.0, seconds)


@dataclass
class Search:
    """Trains, and keeps account."""

    epochs: int
    seeds: int
    side: int
    width: int
    console: Console

    def run(self, name: str, method: actzip.Method | None, seed: int, epochs: int = 0) -> Run:
        found = train(method, epochs or self.epochs, seed, self.side, self.width)
        self.console.print(
            f"{name}, seed {seed}: accuracy {found.accuracy:.4f}, {found.bits:.2f} bits, "
            f"{found.seconds:.1f} s"
        )
        return found

    def several(self, name: str, method: actzip.Method | None) -> list[Run]:
        return [self.run(name, method, seed) for seed in range(self.seeds)]

    def grid(self, plain: float) -> dict[str, Any]:
        """The fewest bits that are as good as plain, after every one of them was trained."""
        runs = {bits: self.several(f"{bits} bits", fixed(bits)) for bits in GRID}
        mean = {bits: statistics.fmean(r.accuracy for r in found) for bits, found in runs.items()}
        good = [bits for bits in GRID if mean[bits] >= plain - CLOSE]
        chosen = good[0] if good else GRID[-1]
        return {
            "chosen": chosen,
            "accuracy": mean[chosen],
            "bits": statistics.fmean(r.bits for r in runs[chosen]),
            "seconds": sum(r.seconds for found in runs.values() for r in found),
            "trainings": len(GRID) * self.seeds,
            "runs": {str(bits): [asdict(r) for r in found] for bits, found in runs.items()},
        }

    def halving(self) -> dict[str, Any]:
        """The better half of the bits goes on for twice as long, until one is left."""
        left, epochs, seconds, trainings = list(GRID), max(1, self.epochs // 4), 0.0, 0
        while True:
            runs = {
                bits: self.run(f"halving, {bits} bits", fixed(bits), 0, epochs) for bits in left
            }
            seconds += sum(r.seconds for r in runs.values())
            trainings += len(runs)
            # of equally good ones the one with fewer bits
            order = sorted(left, key=lambda b: (-round(runs[b].accuracy, 3), b))
            if len(left) == 1:
                break
            left, epochs = order[: max(1, len(left) // 2)], min(self.epochs, 2 * epochs)
        last = runs[left[0]]
        return {
            "chosen": left[0],
            "accuracy": last.accuracy,
            "bits": last.bits,
            "seconds": seconds,
            "trainings": trainings,
        }


def main(
    epochs: Annotated[int, typer.Option(help="Of a full training.")] = 12,
    seeds: Annotated[int, typer.Option(help="Trainings of each bits in the grid.")] = 5,
    threads: Annotated[int, typer.Option(help="Threads of PyTorch.")] = 1,
    quick: Annotated[bool, typer.Option(help="A few steps, nothing written.")] = False,
) -> None:
    torch.set_num_threads(threads)
    console = Console()
    search = Search(epochs, seeds, 16, 16, console)
    if quick:
        search = Search(1, 1, 8, 4, console)
    plain = search.several("plain", None)
    accuracy = statistics.fmean(r.accuracy for r in plain)
    ours = search.several("AC-GC", actzip.ACGC())
    found = {
        "plain": {"accuracy": accuracy, "bits": 32.0, "seconds": plain[0].seconds, "trainings": 1},
        "acgc": {
            "accuracy": statistics.fmean(r.accuracy for r in ours),
            "bits": statistics.fmean(r.bits for r in ours),
            "seconds": statistics.fmean(r.seconds for r in ours),
            "trainings": 1,
            "runs": [asdict(r) for r in ours],
        },
        "grid": search.grid(accuracy),
        "halving": search.halving(),
    }
    table = Table(title="Precision by a bound, and by search: digits, ResNet-8")
    for name in (
        "",
        "accuracy",
        "bits per element",
        "trainings",
        "training time, s",
        "times AC-GC",
    ):
        table.add_column(name, justify="right" if name else "left")
    for name, r in found.items():
        times = r["seconds"] / found["acgc"]["seconds"]
        table.add_row(
            name,
            f"{r['accuracy']:.2%}",
            f"{r['bits']:.2f}",
            str(r["trainings"]),
            f"{r['seconds']:.0f}",
            f"{times:.1f}",
        )
    console.print(table)
    if not quick:
        where = {"epochs": epochs, "seeds": seeds, "threads": threads}
        write(RESULTS, {"setting": where, "results": found})


if __name__ == "__main__":
    typer.run(main)
