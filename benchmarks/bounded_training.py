"""COMET and AC-GC on partly trained networks: is the promise kept, and what does it save?

    python benchmarks/bounded_training.py                     # all networks and methods: hours
    python benchmarks/bounded_training.py --network resnet20 --method acgc --steps 300
    python benchmarks/bounded_training.py --network resnet50 --pretrain 80 --steps 40 --batch 16
    python benchmarks/bounded_training.py --quick             # does it run? writes nothing

A network is trained plainly for a while, then with each method from there on; every few steps its
gradients are compared with the exact ones of the same batch, layer by layer. Prints a table per
network and writes results/bounded_training.json; a run that is there already is replaced.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import torch.nn.functional as F
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import actzip
from actzip.autograd.ledger import Row
from actzip.codecs import Keep
from actzip.control.op import Kind
from actzip.methods.base import Site, Stateless
from actzip.methods.comet import paper_sigma
from actzip.tasks import data as sources
from actzip.tasks.models.resnet import cifar_resnet, resnet50
from actzip.tasks.models.vgg import VGG
from parts.checks import Checks
from parts.machine import about
from parts.results import FOLDER, write
from parts.sizes import ratios

RESULTS = FOLDER / "bounded_training.json"

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet20": lambda: cifar_resnet(20, 10, 3),
    "vgg": lambda: VGG(
        ((32, 32), (64, 64), (128, 128), (128, 128)), 10, 3, norm=True, hidden=256, pooled=1
    ),
    "vgg_without_norm": lambda: VGG(
        ((32, 32), (64, 64), (128, 128), (128, 128)), 10, 3, hidden=256, pooled=1
    ),
    "resnet50": lambda: resnet50(10),
}
SIDES = {"resnet50": 224}  #: of pictures that are enlarged
RATES = {"vgg_without_norm": 0.02, "resnet50": 0.02}  #: where 0.1 is too much, or the batch small

METHODS: dict[str, actzip.Method] = {
    "comet": actzip.Comet(interval=100),
    "comet_paper": actzip.Comet(interval=100, model="paper"),
    "comet_all": actzip.Comet(interval=100, scope="all"),
    "acgc": actzip.ACGC(e2=0.5),
    "acgc_fixed": actzip.ACGC(e2=0.5, codec="fixed"),
    "acgc_worst_case": actzip.ACGC(e2=0.5, bound="worst_case"),
    "acgc_worst_case_fixed": actzip.ACGC(e2=0.5, bound="worst_case", codec="fixed"),
}


@dataclass
class Setting:
    """A network that has learned something, and the data it learns from."""

    name: str
    data: Any
    batch: int
    model: nn.Module
    optimizer: torch.optim.Optimizer
    rng: torch.Generator

    @staticmethod
    def of(name: str, steps: int, batch: int, limit: int) -> Setting:
        data = sources.load("cifar10", "classify", limit=limit)
        torch.manual_seed(0)
        model = NETWORKS[name]()
        rate = RATES.get(name, 0.1)
        optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9, weight_decay=5e-4)
        setting = Setting(name, data, batch, model, optimizer, torch.Generator().manual_seed(0))
        for _ in range(steps):
            setting.step(*setting.next())
        return setting

    def next(self) -> tuple[Tensor, Tensor]:
        at = torch.randint(0, len(self.data.train), (self.batch,), generator=self.rng)
        pictures, labels = self.data.train.batch(at, self.rng)
        if self.name in SIDES:
            pictures = F.interpolate(pictures, size=SIDES[self.name], mode="bicubic")
        return pictures, labels

    def step(self, x: Tensor, y: Tensor) -> float:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fork(self) -> Setting:
        """The same state once more; the original goes on untouched."""
        model = copy.deepcopy(self.model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
        optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        rng = torch.Generator()
        rng.set_state(self.rng.get_state())
        return Setting(self.name, self.data, self.batch, model, optimizer, rng)


def run(start: Setting, method: actzip.Method, steps: int, every: int) -> dict[str, Any]:
    """Train on with a method, and check."""
    setting = start.fork()
    twin = copy.deepcopy(setting.model)
    session = actzip.compress(setting.model, method=method, optimizer=setting.optimizer)
    checks, ratio, convolution, losses = Checks(), [], [], []
    began, checking = time.perf_counter(), 0.0
    for i in range(steps):
        x, y = setting.next()
        seed = torch.random.get_rng_state()
        setting.optimizer.zero_grad()
        loss = F.cross_entropy(setting.model(x), y)
        loss.backward()
        if i % every == every - 1:
            now = time.perf_counter()
            twin.load_state_dict(setting.model.state_dict())
            twin.zero_grad()
            torch.random.set_rng_state(seed)  # the same dropout
            F.cross_entropy(twin(x), y).backward()
            checks.add(setting.model, twin)
            rows = session.stats().sites
            ratio.append(session.stats().ratio)
            convolution.append(conv_ratio(rows))
            checking += time.perf_counter() - now
        setting.optimizer.step()
        losses.append(loss.item())
    seconds = (time.perf_counter() - began - checking) / steps
    e2 = method.e2 if isinstance(method, actzip.ACGC) else None
    # fixed codes do not hold a ReLU's mask: its output is stored twice, and belongs to both
    fixed = isinstance(method, actzip.ACGC) and method.codec == "fixed"
    found = {
        "method": repr(method),
        "steps": steps,
        "ratio": {"mean": sum(ratio) / len(ratio), "end": ratio[-1], "least": min(ratio)},
        "conv_ratio": None
        if fixed
        else {"mean": sum(convolution) / len(convolution), "end": convolution[-1]},
        "error": checks.summary(e2),
        "loss_end": sum(losses[-20:]) / len(losses[-20:]),
        "step_seconds": seconds,
        "checks": checks.plain(),
    }
    if isinstance(method, actzip.ACGC):
        found["spread"] = spreads(session)
    if isinstance(method, actzip.Comet):
        found["sigma"] = sigmas(session, setting)
        found["forms"] = ratios(bounded_inputs(session, setting))
    session.remove()
    return found


def conv_ratio(rows: list[Row]) -> float:
    """Over the inputs of convolutions; one that a ReLU made is counted at the ReLU."""
    held = {r.name: r for r in rows if r.node.startswith("Convolution") and r.codec}
    sharers = [r for r in rows if r.shared_with in held]
    raw = sum(r.raw_bytes for r in (*held.values(), *sharers))
    kept = sum(r.stored_bytes for r in held.values())
    return raw / kept


def spreads(session: actzip.Session) -> dict[str, float]:
    """By what factor the gradients of batches add up more or less than others: of all layers the
    median and the largest geometric deviation of ‖g‖²/Σ w among the last looks."""
    layers, found = session._statistics.layers, []
    for layer in layers:
        read = [r for _, r in layers.readings(layer)]
        pairs = [(float(r.parameter_signal), float(r.parameter.sum() * r.power)) for r in read]
        ratios = [signal / weight for signal, weight in pairs if weight > 0]
        if len(ratios) > 2 and min(ratios) > 0:
            found.append(math.exp(statistics.stdev(map(math.log, ratios))))
    return {"median": statistics.median(found), "largest": max(found)}


def sigmas(session: actzip.Session, setting: Setting) -> list[dict[str, float | str]]:
    """Measured deviation of a weight-gradient element, and what both models say, per layer."""
    x, y = setting.next()
    policy, layers = session._policy, session._statistics.layers
    # what the scope leaves out would add noise of its own
    policy._method = dataclasses.replace(policy._method, rest_bits=None)  # type: ignore[attr-defined]
    F.cross_entropy(setting.model(x), y).backward()
    policy._next = session.step  # type: ignore[attr-defined]  # a look at this very batch
    F.cross_entropy(setting.model(x), y).backward()
    noise = {row.parameter: row for row in session.gradient_noise((x, y), draws=12)}
    errors = policy._errors  # type: ignore[attr-defined]
    rows: list[dict[str, float | str]] = []
    for layer in layers:
        if "Convolution" not in layer:
            continue
        r = layers.readings(layer)[-1][1]
        eb = float(errors[layers.site(layer)].mean())
        row = noise[layer.partition(":")[0] + ".weight"]
        rows.append(
            {
                "layer": layer,
                "eb": eb,
                "measured": (row.quantization / float(r.weight_count)) ** 0.5,
                "exact": eb * (float(r.parameter.sum()) / (3 * float(r.weight_count))) ** 0.5,
                "paper": paper_sigma(r, eb),
            }
        )
    return rows


def bounded_inputs(session: actzip.Session, setting: Setting) -> dict[str, tuple[Tensor, float]]:
    """The convolution inputs of one batch, each with its bound."""
    errors = session._policy._errors  # type: ignore[attr-defined]
    kept: dict[str, tuple[Tensor, float]] = {}

    class Look(Stateless):
        def codec(self, site: Site, tensor: Tensor) -> Keep | None:
            if site.op.kind is Kind.CONVOLUTION and site.name in errors:
                kept[site.name] = (tensor.detach().clone(), float(errors[site.name].mean()))
            return None

    session.remove()
    with actzip.compress(setting.model, method=_method(Look)):
        setting.model(setting.next()[0])
    return kept


def _method(kind: type[Stateless]) -> actzip.Method:
    return kind()


def show(console: Console, network: str, runs: dict[str, Any]) -> None:
    table = Table(title=f"{network}, CIFAR-10")
    for name in (
        "method",
        "ratio",
        "conv",
        "‖Δg‖²/‖g‖²",
        "worst layer",
        "above e²",
        "loss",
        "s/step",
    ):
        table.add_column(name, justify="left" if name == "method" else "right")
    for name, r in runs.items():
        error = r["error"]
        above = error.get("layers_above_e2")
        table.add_row(
            name,
            f"{r['ratio']['mean']:.1f}",
            f"{r['conv_ratio']['mean']:.1f}" if r["conv_ratio"] else "",
            f"{error['total_mean']:.4f}",
            f"{error['layer_worst']:.3f}",
            "" if above is None else f"{above} of {error['layers_checked']}",
            f"{r['loss_end']:.3f}",
            f"{r['step_seconds']:.2f}",
        )
    console.print(table)
    for name, r in runs.items():
        if "forms" in r:
            said = ", ".join(f"{form} {ratio:.1f}" for form, ratio in r["forms"].items())
            console.print(f"{name}: conv inputs at its bounds: {said}")
            parts = [s["measured"] / s["exact"] for s in r["sigma"]]
            console.print(f"{name}: measured σ over exact {min(parts):.2f} to {max(parts):.2f}")


def main(
    network: Annotated[list[str] | None, typer.Option(help="Networks; default: all.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Methods; default: all.")] = None,
    pretrain: Annotated[int, typer.Option(help="Plain steps before.")] = 300,
    steps: Annotated[int, typer.Option(help="Steps with each method.")] = 300,
    every: Annotated[int, typer.Option(help="Steps between checks.")] = 5,
    batch: Annotated[int, typer.Option(help="Pictures a step.")] = 64,
    limit: Annotated[int, typer.Option(help="Pictures of the data set.")] = 10_000,
    threads: Annotated[int, typer.Option(help="Threads of PyTorch.")] = 1,
    quick: Annotated[bool, typer.Option(help="A few steps, nothing written.")] = False,
) -> None:
    torch.set_num_threads(threads)
    if quick:
        pretrain, steps, every, batch, limit = 2, 4, 2, 16, 200
    console, found = Console(), {}
    if RESULTS.exists() and not quick:
        found = json.loads(RESULTS.read_text())["networks"]
    for name in network or [n for n in NETWORKS if not (quick and n in SIDES)]:
        start = Setting.of(name, pretrain, batch, limit)
        runs = found.setdefault(name, {})
        for key in method or list(METHODS):
            setting = {"about": about(), "pretrain": pretrain, "batch": batch, "threads": threads}
            runs[key] = setting | run(start, METHODS[key], steps, every)
            console.print(f"{name} {key}: ratio {runs[key]['ratio']['mean']:.1f}")
            if not quick:
                write(RESULTS, {"networks": found})
        show(console, name, runs)


if __name__ == "__main__":
    typer.run(main)
