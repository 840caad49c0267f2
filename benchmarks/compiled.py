"""Compiled training: plain, PyTorch's own ways to save memory, and actzip; all on the CPU.

    python benchmarks/compiled.py --model resnet50 --batch 4   # bytes and errors, no times
    python benchmarks/compiled.py --model gpt --steps 10       # times too: on an idle machine alone
    python benchmarks/compiled.py --model "small gpt"          # does it run? writes nothing

For each way, in a process of its own: bytes that forward saves for backward (parameters excluded),
how many times that is less than what compiled plain saves, the squared error of the gradient beside
that of plain eager training, the live peak of a step and, with `--steps`, its seconds (median).

Writes results/compiled_resnet50.json or results/compiled_gpt.json, after each way. Ways that the
file has of the same source are not run again, unless they were run with fewer steps or have failed:
what was interrupted is gone on with by the same command.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import actzip
from actzip.tasks.models.decoder import Decoder
from actzip.tasks.models.resnet import resnet8, resnet50
from parts.machine import about
from parts.results import FOLDER, changed_lines, write

METHODS: dict[str, dict[str, Any]] = {
    "actzip lossless": {"method": "lossless"},
    "actzip fixed": {"method": "fixed"},
    "actzip actnn 2": {"method": "actnn", "bits": 2},
    "actzip actnn 3": {"method": "actnn", "bits": 3},
    "actzip auto": {"method": "auto"},
}
MODELS = ("gpt", "resnet50", "small gpt", "small resnet")
WAYS = ("plain", "budget 0.5", "fp8 pass", "checkpoint", *METHODS)
#: ActNN with bits that the other kind of network needs.
NOT_FOR = {"gpt": "actzip actnn 2", "resnet50": "actzip actnn 3"}


def subject(name: str, batch: int) -> tuple[nn.Module, Tensor]:
    if name == "resnet50":
        return resnet50(), torch.randn(batch, 3, 224, 224)
    if name == "small resnet":
        return resnet8(), torch.randn(batch, 3, 32, 32)
    if name == "small gpt":
        return Decoder(512, 64, 128, 2, 4, 0.0), torch.randint(0, 512, (batch, 64))
    return Decoder(8192, 256, 384, 6, 6, 0.0), torch.randint(0, 8192, (batch, 256))


class Whole(nn.Module):
    """The model under one checkpoint for each of its large children."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        for part in model.modules():
            if type(part).__name__ in ("Block", "Bottleneck"):
                inner = part.forward
                part.forward = lambda *a, inner=inner: checkpoint(inner, *a, use_reentrant=False)  # type: ignore[method-assign]

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.model(x)
        return out


@contextlib.contextmanager
def settings(way: str) -> Iterator[None]:
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor

    changes = {"activation_memory_budget": 0.5} if way == "budget 0.5" else {}
    passes: dict[str, Any] = dict(inductor.post_grad_fusion_options)
    if way == "fp8 pass":
        passes["activation_quantization_aten_pass"] = {
            "quant_type": "torch.float8_e5m2",
            "use_scaling": True,
            "size_in_mb": 0.0,
            "exclude_primals": True,
            "allowed_dtypes": "torch.float32",
        }
    with functorch.patch(**changes), inductor.patch(post_grad_fusion_options=passes):
        yield


def saved_bytes(y: Tensor, model: nn.Module) -> int:
    """Parameters are left out, and copies of them that a compiler lays out in another way."""
    weights = list(model.parameters())
    own = {p.untyped_storage().data_ptr() for p in weights}
    found: dict[int, int] = {}
    stack, seen = [y.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for t in getattr(node, "saved_tensors", ()):
            if any(t.shape == p.shape and torch.equal(t, p) for p in weights):
                continue
            storage = t.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
        stack += [parent for parent, _ in node.next_functions]
    return sum(n for at, n in found.items() if at not in own)


def step(model: Callable[[Tensor], Tensor], x: Tensor) -> None:
    model(x).float().square().mean().backward()


#: Passes before anything is measured: methods that learn then look at none for a while.
WARM = 12


def run(way: str, model: nn.Module, x: Tensor, steps: int, backend: str) -> dict[str, Any]:
    session = actzip.compress(model, **METHODS[way]) if way in METHODS else None
    with settings(way):
        whole = Whole(model) if way == "checkpoint" else model
        compiled = torch.compile(whole, backend=backend)
        for _ in range(WARM if session is not None else 1):
            step(compiled, x)
        saved = saved_bytes(compiled(x), model)
        model.zero_grad()
        step(compiled, x)
        gradient = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        with actzip.measure() as measured:
            step(compiled, x)
        times = []
        for _ in range(steps):
            begun = time.perf_counter()
            step(compiled, x)
            times.append(time.perf_counter() - begun)
    if session is not None:
        session.remove()
    return {
        "steps": steps,
        "seconds": statistics.median(times) if times else None,
        "live_peak": measured.live_peak,
        "saved_bytes": saved,
        "gradient": gradient,
    }


def alone(way: str, args: argparse.Namespace) -> dict[str, Any]:
    """One way in this process."""
    torch.manual_seed(0)
    model, x = subject(args.model, args.batch)
    eager = copy.deepcopy(model)
    step(eager, x)
    exact = [p.grad for p in eager.parameters() if p.grad is not None]
    found = run(way, model, x, args.steps, args.backend)
    pairs = zip(found.pop("gradient"), exact, strict=True)
    off = sum(float((a - b).double().square().sum()) for a, b in pairs)
    found["error"] = off / sum(float(g.double().square().sum()) for g in exact)
    return found


def apart(way: str, args: argparse.Namespace) -> dict[str, Any]:
    """The same in a fresh process; one that this torch cannot go must not end the others."""
    given = ("--model", args.model, "--backend", args.backend, "--batch", args.batch)
    ask = [sys.executable, __file__, *given, "--steps", args.steps, "--alone", way]
    ran = subprocess.run([str(word) for word in ask], stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        return {"failed": f"exit status {ran.returncode}"}
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def is_done(found: dict[str, Any] | None, steps: int) -> bool:
    if found is None or "failed" in found:
        return False
    timed: int = found["steps"]
    return timed >= steps


def known(path: Path | None, settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The ways that a file has of these settings, of the same src/ and on the same machine."""
    if path is None or not path.exists():
        return {}
    before = json.loads(path.read_text())
    now = about()
    same = all(before["about"][name] == now[name] for name in ("torch", "cpu", "instructions"))
    same = same and changed_lines(before["about"]["commit"], now["commit"]) == 0
    ways: dict[str, dict[str, Any]] = before["ways"]
    return ways if same and before["settings"] == settings else {}


def compared(ways: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """In order, and each beside plain, which comes first."""
    ordered = {each: dict(ways[each]) for each in WAYS if each in ways}
    whole = ways.get("plain", {}).get("saved_bytes")
    for found in ordered.values():
        if whole is not None and found.get("saved_bytes"):
            found["ratio"] = whole / found["saved_bytes"]
    return ordered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", choices=MODELS, default="gpt")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=0, help="steps that are timed")
    parser.add_argument("--ways", nargs="*", choices=WAYS)
    parser.add_argument("--alone", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(alone(args.alone, args)))
        return
    head = {"model": args.model, "batch": args.batch, "backend": args.backend}
    path = None if args.model.startswith("small") else FOLDER / f"compiled_{args.model}.json"
    ways = known(path, head)
    for way in args.ways or [each for each in WAYS if each != NOT_FOR.get(args.model)]:
        if not is_done(ways.get(way), args.steps):
            ways[way] = apart(way, args)
        ways = compared(ways)
        print(f"{way:16}", json.dumps(ways[way]), flush=True)
        if path is not None:
            write(path, {"settings": head, "ways": ways})


if __name__ == "__main__":
    main()
