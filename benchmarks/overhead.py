"""What watching costs: a chain of 200 Linear(8, 8), where every saved tensor is too small to store.

    python benchmarks/overhead.py

Plain, attached and removed again are timed in turns in one process; the best of many rounds
counts. Prints a table and writes results/overhead.json.
"""

from __future__ import annotations

import json
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import actzip

LAYERS = 200
ROUNDS = 400


def chain() -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(LAYERS)))


def micros(run: Callable[[], Tensor], times: int = 5) -> float:
    """Best microseconds per layer of a few forward passes."""
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
    return best / LAYERS * 1e6


def measure() -> dict[str, float]:
    """Microseconds per op: plain, with a session attached, and after its removal."""
    x = torch.randn(8, 8)
    plain, attached, removed = chain(), chain(), chain()
    actzip.compress(removed).remove()
    session = actzip.compress(attached)
    models = {"plain": plain, "attached": attached, "removed": removed}
    best = dict.fromkeys(models, float("inf"))
    for _ in range(ROUNDS):
        for name, model in models.items():
            best[name] = min(best[name], micros(lambda model=model: model(x)))  # type: ignore[misc]
    assert session.stats().small_bytes > 0, "the chain was not watched"
    session.remove()
    return best


def main() -> None:
    warnings.simplefilter("ignore", actzip.ActzipWarning)
    torch.set_num_threads(1)
    best = measure()
    over = {name: value - best["plain"] for name, value in best.items()}
    table = Table(title=f"{LAYERS} x Linear(8, 8), microseconds per op, best of {ROUNDS} rounds")
    for column in ("", "per op", "over plain"):
        table.add_column(column, justify="left" if not column else "right")
    for name, value in best.items():
        table.add_row(name, f"{value:.2f}", f"{over[name]:+.2f}")
    Console().print(table)
    result = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "layers": LAYERS,
        "rounds": ROUNDS,
        "per_op_us": best,
        "over_plain_us": over,
    }
    path = Path(__file__).parent / "results" / "overhead.json"
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
