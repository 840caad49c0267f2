"""Is a change slower than what was before? Two checkouts in turns, each run in a fresh process.

    git worktree add before REVISION
    cmake -S before -B before/build && cmake --build before/build
    cp before/build/libactzip.so before/src/actzip/kernels/
    python benchmarks/before_after.py before --rounds 3
    python benchmarks/before_after.py . --quick          # does it run? seconds, writes nothing

Three things: what one layer more costs beside plain PyTorch, for layers whose tensors are stored
and for layers too small to be looked at; codecs beside `copy_`; steps of a ResNet-20 beside plain.
Both checkouts run the code in this file, which uses only what is public. Prints the best of all
rounds, old and new side by side, and writes every round to results/before_after.json.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

HERE = Path(__file__).resolve()
RESULT = HERE.parent / "results" / "before_after.json"
#: In the child: this checkout's package comes first, whatever is installed.
_CHILD = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "Editable" not in type(f).__name__]
sys.path.insert(0, sys.argv[1])
sys.argv.pop(1)
import runpy
runpy.run_path(sys.argv[1], run_name="child")["child"](*sys.argv[2:])
"""


def best(function: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        function()
        found.append(time.perf_counter() - begun)
    return min(found)


def child(what: str, quick: str) -> None:
    """One round of one checkout; prints JSON."""
    import warnings

    warnings.simplefilter("ignore")
    print(json.dumps({"overhead": overhead, "codecs": codecs, "step": step}[what](quick == "1")))


def overhead(quick: bool) -> dict[str, float]:
    """Microseconds of one layer (Linear, Tanh) more, forward and backward: 24 layers less 8."""
    import torch
    from torch import nn

    import actzip

    torch.set_num_threads(1)

    def seconds(width: int, layers: int, method: str) -> float:
        torch.manual_seed(0)
        parts = [each for _ in range(layers) for each in (nn.Linear(width, width), nn.Tanh())]
        model, x = nn.Sequential(*parts), torch.randn(width, width)
        if method != "plain":
            actzip.compress(model, method)
        times = sorted(
            best(lambda: model(x).sum().backward(), 1) for _ in range(4 if quick else 400)
        )
        return statistics.fmean(times[: max(1, len(times) // 8)])

    return {
        f"{name}, {method}": (seconds(width, 24, method) - seconds(width, 8, method)) / 16 * 1e6
        for name, width in (("nothing stored", 4), ("stored", 64))
        for method in ("plain", "fixed", "lossless", "actnn")
    }


def codecs(quick: bool) -> dict[str, float]:
    """How many times as fast as `copy_`."""
    import torch

    from actzip.codecs import BitMask, Bounded, Dual, Group

    torch.manual_seed(0)
    n = 1 << (16 if quick else 26)
    x = torch.randn(n)
    maps = x.view(-1, 64, 32, 32)
    found = {}
    for name, codec, values in (
        ("Group 2 bits", Group(2), x),
        ("Group 4 bits", Group(4), x),
        ("Group 8 bits", Group(8), x),
        ("Group 2 bits, zero", Group(2, zero=True), x.relu()),
        ("Group 2 bits, bf16", Group(2), x.bfloat16()),
        ("BitMask", BitMask(), x > 0),
        ("Dual", Dual(8, 2), maps),
        ("Bounded", Bounded(0.05), x),
        ("Bounded, entropy", Bounded(0.05, entropy=True), x),
    ):
        out, times = torch.empty_like(values), 2 if quick else 9
        copy = best(lambda out=out, values=values: out.copy_(values), times)
        payload = codec.encode(values, seed=1)
        encode = best(lambda codec=codec, values=values: codec.encode(values, seed=1), times)
        decode = best(lambda codec=codec, p=payload, out=out: codec.decode(p, out=out), times)
        found[f"{name}, encode"], found[f"{name}, decode"] = copy / encode, copy / decode
    return found


def step(quick: bool) -> dict[str, float]:
    """Median seconds of a step of ResNet-20, batch 128, and the same in parts of plain's."""
    import torch
    import torch.nn.functional as F

    import actzip
    from actzip.tasks.models.resnet import resnet20

    found: dict[str, float] = {}
    for method in ("plain", "lossless", "fixed", "actnn", "acgc"):
        torch.manual_seed(0)
        model = resnet20().to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        x = torch.randn(4 if quick else 128, 3, 32, 32).to(memory_format=torch.channels_last)
        y = torch.randint(0, 10, (len(x),))
        if method != "plain":
            actzip.compress(model, method, optimizer=optimizer)

        def run(model: Any = model, optimizer: Any = optimizer, x: Any = x, y: Any = y) -> None:
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

        times = [best(run, 1) for _ in range(3 if quick else 40)]
        found[method] = statistics.median(times[min(6, len(times) - 1) :])
    return {name: seconds / found["plain"] for name, seconds in found.items() if name != "plain"}


def main(
    before: Annotated[Path, typer.Argument(help="The other checkout.")],
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    quick: Annotated[bool, typer.Option(help="Tiny, nothing is written.")] = False,
) -> None:
    """Compare this checkout with another one."""
    trees = {"before": before.resolve(), "after": HERE.parent.parent}
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for what in ("overhead", "codecs", "step"):
        for _ in range(1 if quick else rounds):
            for name, tree in trees.items():
                command = [sys.executable, "-c", _CHILD, tree / "src", HERE, what, str(int(quick))]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                found.setdefault(what, {}).setdefault(name, []).append(json.loads(done.stdout))
        pick = max if what == "codecs" else min
        for case in found[what]["after"][0]:
            old, new = (pick(r[case] for r in found[what][name]) for name in trees)
            print(f"{what:9} {case:28} {old:8.3f} {new:8.3f}", flush=True)
    if not quick:
        from parts.results import write  # not above: a child takes the other checkout's package

        write(RESULT, {"before": _commit(before), "rounds": rounds, **found})


def _commit(tree: Path) -> str:
    asked = ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    typer.run(main)
