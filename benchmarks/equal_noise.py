"""How small is each method at equal gradient noise? Stored ratio against measured gradient error.

    python benchmarks/equal_noise.py                          # all networks, hours on two cores
    python benchmarks/equal_noise.py --network resnet20
    python benchmarks/equal_noise.py --network resnet20 --minutes 9
    python benchmarks/equal_noise.py --quick                  # does it run? writes nothing

A network is trained for some hundred steps on real data without compression. Then each method
learns from some passes with the weights as they are, so that all are measured at the same ones,
and `session.gradient_noise` tells on some batches what its codes add to the gradients: in parts
of the squared gradient, in parts of the variance that SGD has anyway, and the same for the worst
layer. "auto at actnn:bits=2" is `auto` with the noise at which its measured error is just not
above that of ActNN with 2 bits, found by trying a few. Weights, and every method's figures once
they are known, are kept: a run that is interrupted, or that ends after `--minutes`, goes on where
it was. A network of 224² has few steps and small batches: such a step takes seconds on two cores.
Writes results/equal_noise.json and results/equal_noise.png.
"""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import matplotlib
import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn

import actzip
from actzip.tasks.catalogue import TASKS
from actzip.tasks.data import Data, load
from actzip.tasks.method_spec import parse
from actzip.tasks.models.resnet import cifar_resnet, resnet50
from actzip.tasks.models.unet import UNet
from actzip.tasks.models.vgg import VGG, VGG16
from actzip.tasks.models.vit import ViT
from parts.machine import about

matplotlib.use("agg")

from matplotlib import pyplot as plt

Trained = tuple[nn.Module, torch.optim.Optimizer]

RESULTS = Path(__file__).parent / "results"
METHODS = (
    *("actnn:bits=2", "actnn:bits=3", "division", "comet", "acgc"),
    *("auto:noise=0.02", "auto:noise=0.05", "auto:noise=0.12"),
)
MATCHED = ("actnn:bits=2", "actnn:bits=3")  #: whose error `auto` shall have, and no more
TRIES = 5  #: noises that are tried for it
NEAR = 0.93  #: of the error that is aimed at: no further try


@dataclass(frozen=True)
class Network:
    """A model, what it is trained on, and how."""

    task: str
    data: str
    build: Callable[[Data], nn.Module] | str  #: or the name of one of the task's models
    batch: int
    sizes: dict[str, Any] = field(default_factory=dict)
    side: int | None = None
    length: int | None = None
    rate: float = 1e-3
    optimizer: str = "adamw"
    steps: int = 300  #: plain ones before
    settle: int = 24  #: passes that each method learns from
    looks: int = 3  #: batches that noise is measured on


def _resnet20(data: Data) -> nn.Module:
    return cifar_resnet(20, len(data.classes), data.channels)


def _resnet50(data: Data) -> nn.Module:
    return resnet50(len(data.classes), data.channels)


def _vgg16(data: Data) -> nn.Module:
    return VGG(VGG16, len(data.classes), data.channels, norm=True, hidden=512, pooled=1)


def _unet(data: Data) -> nn.Module:
    return UNet(len(data.classes), data.channels, 32, 3)


def _vit_s(data: Data) -> nn.Module:
    return ViT(data.side, 16, 384, 12, 6, len(data.classes), data.channels, 0.0)


_TEXT = {"width": 128, "depth": 4, "heads": 4, "dropout": 0.0}
_LARGE: dict[str, Any] = {"side": 224, "steps": 80, "settle": 10, "looks": 1}
NETWORKS: dict[str, Network] = {
    "resnet20": Network("classify", "cifar10", _resnet20, 128, rate=0.1, optimizer="sgd"),
    "gpt": Network("lm", "shakespeare", "decoder", 32, _TEXT, length=128),
    "bert": Network("text", "movie-reviews", "encoder", 32, _TEXT, length=128),
    "lstm": Network("text", "movie-reviews", "lstm", 32, {"width": 128, "dropout": 0.0}, None, 128),
    "unet": Network("segment", "scenes", _unet, 16, side=96, steps=200),
    "vgg16": Network("classify", "cifar10", _vgg16, 64, rate=0.02, optimizer="sgd", steps=200),
    "vit-s": Network("classify", "cifar10", _vit_s, 16, rate=3e-4, **_LARGE),
    "resnet50": Network(
        "classify", "cifar10", _resnet50, 8, {}, rate=0.02, optimizer="sgd", **_LARGE
    ),
}


@dataclass(frozen=True)
class Figures:
    """What was measured of one method on one network."""

    ratio: float  #: plain bytes of saved tensors over stored ones
    error: float  #: E‖Δg‖²/‖g‖², bias included, of the whole gradient
    share: float  #: variance that codes add, over the variance that SGD has
    bias: float  #: squared bias over the squared gradient
    worst: float  #: the largest error of a layer
    worst_share: float  #: the largest share of a layer
    predicted: float | None = None  #: the share that the method predicts
    noise: float | None = None  #: that `auto` was asked for


class Bench:
    """One network: its data, its weights after the plain steps, and batches without an end."""

    def __init__(self, name: str, folder: Path, network: Network | None = None):
        self.network = n = network or NETWORKS[name]
        self.task = TASKS[n.task]
        self.data = load(n.data, n.task, side=n.side, length=n.length)
        self._file = folder / f"{name}-{n.steps}.pt"

    def model(self) -> Trained:
        torch.manual_seed(0)
        n = self.network
        if isinstance(n.build, str):
            built = self.task.build(n.build, self.data, n.sizes)
        else:
            built = n.build(self.data)
        if n.optimizer == "sgd":
            sgd = torch.optim.SGD(built.parameters(), n.rate, momentum=0.9, weight_decay=5e-4)
            return built, sgd
        return built, torch.optim.AdamW(built.parameters(), n.rate)

    def batches(self, seed: int) -> Iterator[tuple[Tensor, Any]]:
        rng = torch.Generator().manual_seed(seed)
        while True:
            at = torch.randint(0, len(self.data.train), (self.network.batch,), generator=rng)
            yield self.data.train.batch(at, rng)

    def trained(self, until: float) -> Trained | None:
        """After the plain steps, or None when there was not time enough; then call again."""
        model, optimizer = self.model()
        done = 0
        if self._file.exists():
            kept = torch.load(self._file)
            model.load_state_dict(kept["model"])
            optimizer.load_state_dict(kept["optimizer"])
            done = kept["steps"]
        data = self.batches(seed=done)
        while done < self.network.steps and time.monotonic() < until:
            self.step(model, optimizer, next(data))
            done += 1
        self._file.parent.mkdir(parents=True, exist_ok=True)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": done}
        torch.save(state, self._file)
        return (model, optimizer) if done >= self.network.steps else None

    def step(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, Any]
    ) -> None:
        optimizer.zero_grad()
        self.task.loss(model, *batch).backward()
        optimizer.step()

    def figures(self, method: str, start: Trained) -> Figures:
        """Of the method at these weights."""
        model, optimizer = self.model()
        model.load_state_dict(copy.deepcopy(start[0].state_dict()))
        optimizer.load_state_dict(copy.deepcopy(start[1].state_dict()))
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        name, options = parse(method)
        session = actzip.compress(model, name, optimizer=optimizer, **options)
        data = self.batches(seed=1)
        ratios = []
        for _ in range(self.network.settle):
            self.step(model, optimizer, next(data))
            ratios.append(session.stats().ratio)
        wrapped, loss = self._for_noise()
        reports = [
            session.gradient_noise(wrapped(next(data)), loss, draws=3, parts=8)
            for _ in range(self.network.looks)
        ]
        predicted = session.metrics().get("noise_predicted")
        session.remove()
        ratio = sum(ratios[-4:]) / len(ratios[-4:])
        return _figures(reports, ratio, predicted, options.get("noise"))

    def matched(self, goal: Figures, start: Trained, first: float | None) -> Figures:
        """`auto` with the noise at which it has at most the error of `goal`, and nearly that;
        `first`: what it was at last time."""
        noise, best = first or max(goal.share, 0.02), None
        for _ in range(TRIES):
            found = self.figures(f"auto:noise={noise:.4g}", start)
            if found.error <= goal.error and (best is None or found.ratio > best.ratio):
                best = found
            if best is not None and best.error >= NEAR * goal.error:
                break
            # in proportion to what was asked for, as far as codes are not at their coarsest
            noise = min(1.0, noise * min(16.0, 0.97 * goal.error / found.error))
        return best or found

    def _for_noise(self) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Tensor]]:
        """Batches and loss as `gradient_noise` takes them."""
        if self.network.task == "text":
            padding = self.data.padding

            def named(batch: tuple[Tensor, Tensor]) -> Any:
                return {"ids": batch[0], "keep": batch[0] != padding}, batch[1]

            return named, F.cross_entropy
        if self.network.task == "lm":
            return lambda b: b, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten())
        return lambda b: b, F.cross_entropy


def _figures(
    reports: list[actzip.NoiseReport], ratio: float, predicted: float | None, noise: float | None
) -> Figures:
    names = ("signal", "bias", "quantization", "sgd")
    total = {n: sum(getattr(r.total, n) for r in reports) for n in names}
    layers: dict[str, dict[str, float]] = {}
    for report in reports:
        for row in report:
            sums = layers.setdefault(row.parameter.rpartition(".")[0], dict.fromkeys(names, 0.0))
            for n in names:
                sums[n] += getattr(row, n)
    least = 1e-6 * total["signal"]  # a bias before a norm has no gradient to speak of
    kept = [sums for sums in layers.values() if sums["signal"] > least]
    return Figures(
        ratio=ratio,
        error=(total["quantization"] + total["bias"]) / total["signal"],
        share=total["quantization"] / total["sgd"],
        bias=total["bias"] / total["signal"],
        worst=max((s["quantization"] + s["bias"]) / s["signal"] for s in kept),
        worst_share=max(s["quantization"] / max(s["sgd"], 1e-30) for s in kept),
        predicted=predicted,
        noise=noise,
    )


def draw(results: dict[str, Any], file: Path) -> None:
    """A panel for each network: ratio against the share of SGD's variance."""
    count = len(results)
    columns = min(4, count)
    rows = -(-count // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(4 * columns, 3.4 * rows), squeeze=False)
    for axis in axes.flat[count:]:
        axis.axis("off")
    for axis, (name, found) in zip(axes.flat, results.items(), strict=False):
        kinds: dict[str, list[tuple[float, float]]] = {}
        for method, f in found["methods"].items():
            kinds.setdefault(parse(method.split(" at ")[0])[0], []).append((f["share"], f["ratio"]))
        for kind, points in kinds.items():
            points.sort()
            style = "o-" if kind == "auto" else "s--"
            axis.plot([p[0] for p in points], [p[1] for p in points], style, label=kind)
        axis.set(xscale="log", title=name, xlabel="codes' share of SGD's variance")
        axis.set_ylabel("stored ratio")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def measure(bench: Bench, start: Trained, method: str, known: dict[str, Any]) -> Figures | None:
    """Figures of one method; None if it waits for those of another."""
    kind, _, goal = method.partition(" at ")
    if not goal:
        return bench.figures(kind, start)
    first = known.get(method, {}).get("noise")
    return bench.matched(Figures(**known[goal]), start, first) if goal in known else None


def main(
    network: Annotated[list[str] | None, typer.Option(help="Networks; default: all.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Methods; default: all.")] = None,
    minutes: Annotated[float, typer.Option(help="End after about so long.")] = 600.0,
    out: Annotated[Path, typer.Option(help="Folder of the weights.")] = Path("runs/equal_noise"),
    again: Annotated[bool, typer.Option(help="Also what is known already.")] = False,
    quick: Annotated[bool, typer.Option(help="A few steps, nothing written.")] = False,
) -> None:
    """Measure every method on every network that has not been measured yet."""
    until = time.monotonic() + 60 * minutes
    if quick:
        few = replace(NETWORKS["gpt"], steps=2, settle=4, looks=1)
        bench = Bench("gpt", out / "quick", few)
        start = bench.trained(until)
        assert start is not None
        print(bench.figures("auto:noise=0.05", start))
        return
    file = RESULTS / "equal_noise.json"
    for name in network or list(NETWORKS):
        bench = Bench(name, out)
        start = bench.trained(until)
        for each in method or (*METHODS, *(f"auto at {m}" for m in MATCHED)):
            if start is None or time.monotonic() >= until:
                break
            known = _read(file).get(name, {}).get("methods", {})
            if each in known and not again:
                continue
            figures = measure(bench, start, each, known)
            if figures is not None:
                print(f"{name:9} {each:22} {figures}", flush=True)
                _write(file, name, bench.network, each, figures)
    known = _read(file)
    if known:
        draw(known, RESULTS / "equal_noise.png")


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def _write(file: Path, name: str, network: Network, method: str, figures: Figures) -> None:
    """Add one method's figures; read anew, because another process may have written others'."""
    results = _read(file)
    how = {n: getattr(network, n) for n in ("data", "side", "length", "batch", "steps", "settle")}
    found = results.setdefault(name, {"methods": {}})
    found.update(how)
    found["methods"][method] = {**asdict(figures), "about": about()}
    results = {n: results[n] for n in NETWORKS if n in results}
    partial = file.with_suffix(f".{os.getpid()}.part")
    partial.write_text(json.dumps(results, indent=1) + "\n")
    partial.replace(file)


if __name__ == "__main__":
    typer.run(main)
