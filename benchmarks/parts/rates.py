"""Bits per element against noise, for Gaussian data: how far each format is from the limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from actzip.codecs import Bounded, Codec, Group


def curves() -> Iterator[tuple[str, list[Codec]]]:
    """Codecs from coarse to fine, for data of variance 1."""
    yield "Group, dither", [Group(bits=b) for b in range(1, 9)]
    yield "Group, dither, entropy", [Group(bits=b, entropy=True) for b in range(1, 9)]
    yield "Group, stochastic", [Group(bits=b, rounding="stochastic") for b in range(1, 9)]
    errors = [2.0**-k for k in range(-1, 7)]
    yield "Bounded", [Bounded(error=e) for e in errors]
    yield "Bounded, entropy", [Bounded(error=e, entropy=True) for e in errors]


def rate(codec: Codec, x: Tensor) -> tuple[float, float]:
    """(bits per element, noise as a fraction of the signal's power)."""
    payload = codec.encode(x, seed=1)
    noise = (x - codec.decode(payload)).double().square().mean() / x.double().square().mean()
    return 8 * payload.nbytes / x.numel(), float(noise)


def measure(count: int = 1 << 22) -> dict[str, list[tuple[float, float]]]:
    x = torch.randn(1, 1, count, generator=torch.Generator().manual_seed(0))
    return {name: [rate(codec, x) for codec in codecs] for name, codecs in curves()}


def draw(points: dict[str, list[tuple[float, float]]], path: Path) -> None:
    """The picture: both axes as measured, with the Gaussian limit 2^(-2 bits)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 5))
    for name, curve in points.items():
        axes.plot(*zip(*curve, strict=True), marker="o", markersize=4, label=name)
    bits = [b / 10 for b in range(2, 91)]
    limit: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1}
    axes.plot(bits, [2 ** (-2 * b) for b in bits], label="Gaussian limit", **limit)
    axes.set(yscale="log", xlabel="bits per element", ylabel="noise / signal power", xlim=(0, 9))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
