"""What Dithered stores against the entropy of its codes, for steps of many sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from actzip.codecs import Bounded, Dithered
from actzip.kernels.reference.dither import dither
from actzip.tasks import data as sources
from actzip.tasks.models.resnet import cifar_resnet

#: Steps in standard deviations: 4 bits of a normal distribution take 0.26, 0.1 bits take 27.
STEPS = (0.26, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 13.0, 18.0, 27.0)
BINS = 32  #: ranges of the dither that the entropy is given
SEED = 7


def tensors(n: int, steps: int) -> Iterator[tuple[str, Tensor]]:
    """(name, values): three distributions, and inputs of BatchNorms of a ResNet-20."""
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(n, generator=generator)
    u = torch.rand(n, generator=generator) - 0.5
    yield "normal", normal
    yield "Laplace", -u.sign() * (1 - 2 * u.abs()).clamp(min=1e-7).log()
    yield "ReLU", normal.relu()
    yield from batchnorm_inputs(steps)


def batchnorm_inputs(steps: int) -> Iterator[tuple[str, Tensor]]:
    """The first, a middle and the last of a ResNet-20 so many steps trained on CIFAR-10."""
    torch.manual_seed(0)
    train = sources.load("cifar10", "classify", limit=5000).train
    rng = torch.Generator().manual_seed(0)
    model = cifar_resnet(20, 10, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(steps):
        x, y = train.batch(torch.randint(0, len(train), (128,), generator=rng), rng)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    x, _ = train.batch(torch.arange(128), rng)
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for name, norm in zip(
        ("first", "middle", "last"), (norms[0], norms[10], norms[-1]), strict=True
    ):
        seen: list[Tensor] = []
        handle = norm.register_forward_pre_hook(lambda _, given, seen=seen: seen.append(given[0]))
        with torch.no_grad():
            model(x)
        handle.remove()
        yield f"BatchNorm input, {name}", seen[0].detach()


def conditional_entropy(x: Tensor, step: float) -> tuple[float, float]:
    """Bits of round(x / step + v) alone, and given which range v is in."""
    v = dither(SEED, 0, x.numel(), x.device)
    r = torch.round(x.reshape(-1) / step + v).long()
    r -= r.min()
    width = int(r.max()) + 1
    places = ((v + 0.5) * BINS).long() * width + r
    counts = torch.bincount(places, minlength=BINS * width).view(BINS, width).double()
    return _entropy(counts.sum(0, keepdim=True)), _entropy(counts)


def _entropy(counts: Tensor) -> float:
    p = counts / counts.sum(1, keepdim=True)
    logs = torch.where(p > 0, p, torch.ones_like(p)).log2()
    return float(-(counts * logs).sum() / counts.sum())


def measure(n: int, steps: int) -> Iterator[dict[str, Any]]:
    for name, x in tensors(n, steps):
        sigma = float(x.std())
        for relative in STEPS:
            error = relative * sigma / 2
            step = 2 * error * (1 - 2**-10)
            alone, given = conditional_entropy(x, step)
            if given > 4.2:
                continue
            yield {
                "name": name,
                "elements": x.numel(),
                "step": relative,
                "entropy": alone,
                "given_dither": given,
                "dithered": _stored(Dithered(error), x),
                "bounded": _stored(Bounded(error, entropy=True), x),
                "predicted": Dithered(error).rate(x)[0],
            }


def _stored(codec: Dithered | Bounded, x: Tensor) -> float:
    """Bits of an element: tables, states and sizes with them, the head of the payload not."""
    return 8 * codec.encode(x, seed=SEED).data.numel() / x.numel()


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """The picture: per cent above the entropy given the dither, against that entropy."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    for name in dict.fromkeys(row["name"] for row in rows):
        mine = [row for row in rows if row["name"] == name]
        over = [100 * (row["dithered"] / row["given_dither"] - 1) for row in mine]
        bits = [row["given_dither"] for row in mine]
        axes.plot(bits, over, marker="o", markersize=4, label=name)
    ticks = (0.1, 0.2, 0.5, 1, 2, 4)
    axes.axhline(6, color="black", linestyle="--", linewidth=1)
    axes.set(xscale="log", xlabel="entropy given the dither, bits", ylabel="stored above it, %")
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def worst(rows: list[dict[str, Any]]) -> float:
    """The most that is stored above the entropy from 0.1 bits on, as a share of it."""
    there = [row for row in rows if row["given_dither"] >= 0.1]
    return max((row["dithered"] / row["given_dither"] - 1 for row in there), default=math.nan)
