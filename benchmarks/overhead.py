"""What actzip's Python costs: per op that stores nothing, and per stored tensor.

    python benchmarks/overhead.py               # minutes: instructions are counted by valgrind
    python benchmarks/overhead.py --no-callgrind

Tensors are tiny (64 x 8), so kernels hardly count. Each case runs with 8 and with 24 layers: the
difference is what a layer costs, and what a pass costs as a whole drops out. Counted are calls of
Python functions and of C functions (sys.setprofile) and machine instructions (callgrind), which a
busy machine does not change. Times are the best of many passes, plain and with a session in turns
in one process. All figures are over plain. Prints a table and writes results/overhead.json.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import actzip
from parts.results import write

SHORT, LONG = 8, 24
ROUNDS = 150
RESULTS = Path(__file__).parent / "results"


class Block(nn.Module):
    """The feed-forward half of a transformer's block."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(8), nn.Linear(8, 8)
        self.act, self.down = nn.GELU(), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.down(self.act(self.up(self.norm(x))))
        return out


def children(layers: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers)))


def deeper(layers: int) -> nn.Module:
    return nn.Sequential(children(layers))


def blocks(layers: int) -> nn.Module:
    return nn.Sequential(nn.Sequential(*(Block() for _ in range(layers // 4))))


@dataclass(frozen=True)
class Case:
    """A network and a session; `per` layers have one op, or one saved tensor in actzip's hands."""

    name: str
    make: Callable[[int], nn.Module]
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    backward: bool = True
    per: float = 1.0
    warm: int = 3  #: passes before it is what it is in most passes
    slow: bool = False  #: to learn takes too long under valgrind

    def runner(self, layers: int, session: bool) -> Callable[[], None]:
        torch.manual_seed(0)
        model, x = self.make(layers), torch.randn(64, 8)
        if session:
            actzip.compress(model, method=self.method, **self.options)

        def run() -> None:
            y = model(x)
            if self.backward:
                y.sum().backward()

        for _ in range(self.warm if session else 3):
            run()
        return run


ALL = {"min_bytes": 0}
CASES = [
    Case("nothing stored, layers are the model's children", children, "lossless", backward=False),
    Case("nothing stored, layers further down", deeper, "lossless", backward=False),
    Case("stored, fixed", deeper, "fixed", ALL),
    # of a block four tensors are held: two stored, a norm's and a GELU's result derived
    Case("stored or derived, lossless", blocks, "lossless", ALL),
    Case("stored or derived, fixed", blocks, "fixed", {**ALL, "derive": True}),
    Case("stored or derived, auto", blocks, "auto", ALL, warm=130, slow=True),
]


def per_layer(measure: Callable[[int, bool], float], case: Case) -> float:
    """Of a session over plain, by the difference between the long and the short network."""
    long = measure(LONG, True) - measure(LONG, False)
    short = measure(SHORT, True) - measure(SHORT, False)
    return (long - short) / (LONG - SHORT) / case.per


def counted(run: Callable[[], None], event: str) -> int:
    """Calls in one pass."""
    found = 0

    def count(frame: object, what: str, arg: object) -> None:
        nonlocal found
        found += what == event

    gc.disable()
    sys.setprofile(count)
    run()
    sys.setprofile(None)
    gc.enable()
    return found


def measure(case: Case) -> dict[str, float]:
    """Calls and best times; all four networks run in turns.

    The least of several passes counts: one may be a pass in which a method looks and learns.
    """
    runs = {(n, s): case.runner(n, s) for n in (SHORT, LONG) for s in (False, True)}
    found = {}
    for name, event in (("python_calls", "call"), ("c_calls", "c_call")):
        least = {key: min(counted(run, event) for _ in range(3)) for key, run in runs.items()}
        found[name] = per_layer(lambda n, s, least=least: least[n, s], case)  # type: ignore[misc]
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for key, run in runs.items():
            began = time.perf_counter()
            run()
            best[key] = min(best[key], time.perf_counter() - began)
    found["us"] = 1e6 * per_layer(lambda n, s: best[n, s], case)
    return found


def instructions() -> dict[str, float]:
    """Machine instructions of each case, counted by valgrind in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        tool = ["valgrind", "--tool=callgrind", "--dump-before=getppid"]
        said = subprocess.run(
            [*tool, f"--callgrind-out-file={out}", sys.executable, __file__, "--marked"],
            env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        names = [line for line in said.stdout.splitlines() if line]
        # a dump before each mark: what ran before it since the last one
        dumps = [_total(Path(f"{out}.{2 * (i + 1)}")) for i in range(len(names))]
    sums = dict(zip(names, dumps, strict=True))
    return {
        case.name: per_layer(lambda n, s, case=case: sums[_mark(case, n, s)], case)  # type: ignore[misc]
        for case in CASES
        if not case.slow
    }


def _total(dump: Path) -> float:
    found = re.search(r"^(?:summary|totals): (\d+)", dump.read_text(), re.MULTILINE)
    assert found is not None, f"{dump} has no sum"
    return float(found[1])


def _mark(case: Case, layers: int, session: bool) -> str:
    return f"{case.name}; {layers}; {session}"


def run_marked() -> None:
    """What runs under valgrind: `os.getppid` before and after what is counted."""
    for case in CASES:
        for layers in () if case.slow else (SHORT, LONG):
            for session in (False, True):
                run = case.runner(layers, session)
                gc.collect()
                gc.disable()
                os.getppid()
                run()
                os.getppid()
                gc.enable()
                print(_mark(case, layers, session), flush=True)


def main(callgrind: bool = True, marked: bool = typer.Option(False, hidden=True)) -> None:
    warnings.simplefilter("ignore", actzip.ActzipWarning)
    torch.set_num_threads(1)
    if marked:
        run_marked()
        return
    known = instructions() if callgrind and shutil.which("valgrind") else {}
    rows = {case.name: {**measure(case), "instructions": known.get(case.name)} for case in CASES}
    table = Table(title="over plain, for each op or tensor")
    for column in ("", "Python calls", "C calls", "µs, best", "instructions"):
        table.add_column(column, justify="right" if column else "left")
    for name, row in rows.items():
        table.add_row(name, *("" if v is None else f"{v:,.1f}" for v in row.values()))
    Console().print(table)
    result = {
        "layers": [SHORT, LONG],
        "rounds": ROUNDS,
        "cases": rows,
    }
    write(RESULTS / "overhead.json", result)


if __name__ == "__main__":
    typer.run(main)
