"""What choosing the bits costs, beside one training step of ResNet-20 at batch 128.

    python benchmarks/allocate.py

A step of ActNN splits the bits of each site over the samples in its forward, and solves for all
layers, or all layers and samples, once every 100 steps. Solver and step are timed in turns in one
process; a step counts with its median, a solver with the median over its problems. Prints a table
and writes results/allocate.json.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy

from actzip.control.allocate import bits_ladder, least_error, split
from actzip.tasks.models.resnet import cifar_resnet
from parts.results import FOLDER, write

ROUNDS = 12
INTERVAL = 100
LAYERS = 160
BATCH = 128
#: Sites of ResNet-20 whose samples are split in each forward: 21 convolutions (two of them
#: projections), as many BatchNorms, and the classifier.
SITES = 43
ASKED = 0.02

Act = Callable[[], object]


def training_step() -> Act:
    """Forward, backward and update of ResNet-20 on 128 pictures of 32×32."""
    model = cifar_resnet(20)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def network(seed: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Sensitivities and sizes: layers over four decades, samples spread by a factor of e."""
    rng = np.random.default_rng(seed)
    sizes = np.round(10 ** rng.uniform(3, 7, LAYERS))
    sensitivity = np.repeat(sizes * 10 ** rng.uniform(-6, 2, LAYERS), samples)
    return sensitivity * rng.lognormal(0, 1, len(sensitivity)), np.repeat(sizes, samples)


def solvers(seed: int) -> dict[str, Act]:
    """Fresh problems, one per solver; tables are made with the solution, as a method does."""
    bits = (1.25, 1.5, 2.0, 3.0)[seed % 4]
    batches = np.random.default_rng(seed).lognormal(0, 1, (SITES, BATCH))

    def every_site() -> None:
        for batch in batches:
            split(batch, bits * BATCH)

    acts: dict[str, Act] = {f"split of {SITES} sites, {BATCH} samples": every_site}
    for samples in (1, BATCH):
        sensitivity, sizes = network(seed, samples)
        name = f"{LAYERS} layers" + (f" x {samples} samples" if samples > 1 else "")
        budget = bits * float(sizes.sum())

        def by_cost(c: np.ndarray = sensitivity, n: np.ndarray = sizes, b: float = budget) -> None:
            least_error(*bits_ladder(c, n), b)

        acts[f"least_error, {name}"] = by_cost
    return acts


def milliseconds(act: Act) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e3


def measure() -> dict[str, list[float]]:
    """Milliseconds of each act in each round, in turns, so that all see the same machine."""
    step = training_step()
    step()
    times: dict[str, list[float]] = {"training step": []}
    for seed in range(ROUNDS):
        times["training step"].append(milliseconds(step))
        for name, act in solvers(seed).items():
            times.setdefault(name, []).append(milliseconds(act))
    return times


def shares(times: dict[str, list[float]]) -> dict[str, float]:
    """Of a step: the splits of all sites in each forward, a joint solve every 100 steps."""
    median = {name: statistics.median(each) for name, each in times.items()}
    step = median.pop("training step")
    return {
        name: ms / step / (1 if name.startswith("split") else INTERVAL)
        for name, ms in median.items()
    }


def show(times: dict[str, list[float]], share: dict[str, float]) -> None:
    table = Table(title=f"the solver beside a step of ResNet-20, batch {BATCH}, {ROUNDS} rounds")
    for column in ("", "median, ms", "worst, ms", "share of a step"):
        table.add_column(column, justify="left" if not column else "right")
    for name, each in times.items():
        used = f"{share[name]:.3%}" if name in share else ""
        table.add_row(name, f"{statistics.median(each):.3f}", f"{max(each):.3f}", used)
    Console().print(table)
    Console().print(f"the splits are of every step, the others of one in {INTERVAL}")


def main() -> None:
    torch.manual_seed(0)
    times = measure()
    share = shares(times)
    show(times, share)
    result = {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "rounds": ROUNDS,
        "sites": SITES,
        "interval": INTERVAL,
        "median_ms": {name: statistics.median(each) for name, each in times.items()},
        "worst_ms": {name: max(each) for name, each in times.items()},
        "share_of_step": share,
        "asked_share": ASKED,
    }
    write(FOLDER / "allocate.json", result)


if __name__ == "__main__":
    main()
