"""Outlier channels of a pretrained encoder: what they do to low-bit codes, and what helps.

    python benchmarks/outliers.py            # minutes; writes results/outliers.json
    python benchmarks/outliers.py --quick    # does it run? writes nothing

One batch of movie reviews through all-MiniLM-L6-v2 as it comes. Each saved tensor that enters a
gradient is coded in several ways with about the same bytes. `error` is the variance of the code's
error over that of the tensor, the geometric mean over layers; `gradient` is E‖Δg‖²/‖g‖² of all
trained weights when every such tensor is coded that way.

group     groups of 192 values, as in ActNN      channel   a step for each channel
apart     1 % of channels apart, in 8 bits       rotated   Hadamard rotation of 128 channels
centred   channel means apart, then rotated      entropy   one step, entropy-coded: what auto does
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

import actzip
from actzip.codecs import Dithered, Group
from actzip.codecs.base import Codec
from actzip.codecs.payload import Allocate, Payload
from actzip.methods.base import Method, Policy, Site
from actzip.tasks import engine
from actzip.tasks.config import make
from actzip.tasks.trainer import Part, Trainer
from parts.results import write

RESULTS = Path(__file__).parent / "results" / "outliers.json"
BITS = (2, 3, 4)
BLOCK = 128  #: channels that are rotated together: 384 and 1536 are multiples
GROUP = 192  #: values that share a range: as ActNN does, never over the row of a LayerNorm
Coder = Callable[[Tensor, int, int], tuple[Tensor, float]]


def coded(codec: Codec, x: Tensor, seed: int) -> tuple[Tensor, float]:
    """What comes back, and the bytes."""
    payload = codec.encode(x.contiguous(), seed=seed)
    return codec.decode(payload), payload.nbytes


def group(x: Tensor, bits: int, seed: int) -> tuple[Tensor, float]:
    return coded(Group(bits, GROUP), x, seed)


def channel(x: Tensor, bits: int, seed: int) -> tuple[Tensor, float]:
    values, nbytes = coded(Group(bits, min(256, len(x))), x.t(), seed)
    return values.t(), nbytes


def apart(x: Tensor, bits: int, seed: int) -> tuple[Tensor, float]:
    largest = x.abs().amax(0).topk(max(1, x.shape[1] // 100)).indices
    rest = x.index_fill(1, largest, 0.0)
    values, nbytes = group(rest, bits, seed)
    outliers, more = coded(Group(8, min(256, len(x))), x[:, largest].t(), seed)
    return values.index_copy(1, largest, outliers.t()), nbytes + more


def rotated(x: Tensor, bits: int, seed: int) -> tuple[Tensor, float]:
    values, nbytes = group(rotate(x), bits, seed)
    return rotate(values), nbytes


def centred(x: Tensor, bits: int, seed: int) -> tuple[Tensor, float]:
    mean = x.mean(0, keepdim=True)
    values, nbytes = rotated(x - mean, bits, seed)
    return values + mean, nbytes + 4 * x.shape[1]


def entropy(x: Tensor, bits: int, seed: int) -> tuple[Tensor, float]:
    """The step with which it takes as many bytes as a group code."""
    limit, scale = group(x, bits, seed)[1], float(x.std())
    low, high = 1e-4, 64.0
    for _ in range(10):
        middle = math.sqrt(low * high)
        fits = coded(Dithered(error=middle * scale), x, seed)[1] <= limit
        low, high = (low, middle) if fits else (middle, high)
    return coded(Dithered(error=high * scale), x, seed)


CODERS: dict[str, Coder] = {
    each.__name__: each for each in (group, channel, apart, rotated, centred, entropy)
}


def rotate(x: Tensor) -> Tensor:
    """An orthonormal Hadamard rotation of each block of channels; its own inverse."""
    h = torch.ones(1, 1)
    while len(h) < BLOCK:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return (x.reshape(-1, BLOCK) @ (h / math.sqrt(BLOCK))).reshape(x.shape)


def rows(x: Tensor) -> Tensor:
    """Tokens by channels; the heads of attention (n, heads, T, d) side by side."""
    if x.dim() == 4:
        x = x.transpose(1, 2).flatten(2)
    return x.reshape(-1, x.shape[-1])


def fits(x: Tensor) -> bool:
    return x.dim() > 1 and rows(x).shape[1] % BLOCK == 0 and len(rows(x)) >= 32


@dataclass(frozen=True)
class As(Codec):
    """Values as a coder gives them back, kept raw: for their effect, not for their bytes."""

    coder: str
    bits: int
    logical = True

    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Tensor:
        values = rows(x)
        found = CODERS[self.coder](values, self.bits, seed)[0]
        if x.dim() == 4:
            n, heads, length, width = x.shape
            found = found.reshape(n, length, heads, width).transpose(1, 2)
        return found.reshape(x.shape).contiguous().view(-1).view(torch.uint8)

    def _decode(self, payload: Payload, out: Tensor) -> None:
        out.copy_(payload.data.view(out.dtype).view(out.shape))


@dataclass(frozen=True)
class Coded(Method):
    """Every tensor that fits as a coder gives it back; with none, it is only looked at."""

    coder: str = ""
    bits: int = 0

    def start(self, optimizer: torch.optim.Optimizer | None) -> Policy:
        return _Coded(self)


class _Coded(Policy):
    def __init__(self, method: Coded):
        self._method = method
        self.seen: dict[str, Tensor] = {}

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        if not fits(tensor):
            return None
        if self._method.coder:
            return As(self._method.coder, self._method.bits)
        self.seen[site.name] = rows(tensor.detach()).clone()
        LOOKED.update(self.seen)
        return None

    def reason(self, site: Site) -> str:
        return "only looked at"


LOOKED: dict[str, Tensor] = {}


def gradients(trainer: Trainer, part: Part, method: Method, seed: int) -> list[Tensor]:
    session = actzip.compress(trainer.model, method, seed=seed, min_bytes=4096)
    trainer.loss(part).backward()
    session.remove()
    found = [p.grad.clone() for p in trainer.model.parameters() if p.grad is not None]
    trainer.optimizer.zero_grad()
    return found


def gradient_error(trainer: Trainer, part: Part, method: Method, draws: int) -> float:
    exact = gradients(trainer, part, Coded(), 0)
    power = sum(float(g.square().sum()) for g in exact)
    errors = []
    for seed in range(draws):
        ours = gradients(trainer, part, method, seed)
        off = sum(float((a - b).square().sum()) for a, b in zip(ours, exact, strict=True))
        errors.append(off / power)
    return statistics.fmean(errors)


def tensors(coders: list[str]) -> list[dict[str, Any]]:
    """For each kind of tensor: how far its channels differ, and each code's error and bits."""
    kinds: dict[str, list[Tensor]] = defaultdict(list)
    for name, x in LOOKED.items():
        kinds[re.sub(r"\.\d+\.", ".*.", name)].append(x)
    found = []
    for name, layers in kinds.items():
        largest = [x.abs().amax(0) for x in layers]
        row: dict[str, Any] = {
            "site": name,
            "layers": len(layers),
            "largest_over_median_channel": max(float(a.max() / a.median()) for a in largest),
            "codes": {},
        }
        for coder in coders:
            for bits in BITS:
                tried = [CODERS[coder](x, bits, 1) for x in layers]
                errors = [
                    float((y - x).square().mean() / x.var())
                    for (y, _), x in zip(tried, layers, strict=True)
                ]
                row["codes"][f"{coder} {bits}"] = {
                    "error": statistics.geometric_mean(errors),
                    "bits": 8 * sum(n for _, n in tried) / sum(x.numel() for x in layers),
                }
        found.append(row)
    return found


def main(
    quick: Annotated[bool, typer.Option(help="Two codes, nothing written.")] = False,
    length: Annotated[int, typer.Option(min=8)] = 64,
    batch: Annotated[int, typer.Option(min=2)] = 16,
    draws: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """Code the same tensors in every way."""
    coders = ["group", "entropy"] if quick else list(CODERS)
    results: dict[str, Any] = {"torch": torch.__version__, "length": length, "batch": batch}
    results["gradient"] = {}
    for kind, lora in (("full", 0), ("lora", 8)):
        sizes: dict[str, Any] = {"dropout": 0.0, **({"lora": lora} if lora else {})}
        asked = make("text", model="minilm", length=length, limit=64, batch=batch, sizes=sizes)
        data = engine.load(asked)
        trainer = Trainer(asked, data, 1)
        part = Part(*data.train.batch(torch.arange(batch)))
        results["gradient"][kind] = {
            f"{coder} {bits}": gradient_error(trainer, part, Coded(coder, bits), draws)
            for coder in coders
            for bits in (BITS[:1] if quick else BITS)
        }
        if not lora:
            results["tensors"] = tensors(coders)
        LOOKED.clear()
    show(results, coders)
    if not quick:
        write(RESULTS, results)


def show(results: dict[str, Any], coders: list[str]) -> None:
    table = Table(title="error variance over the tensor's, 2-bit group codes and equal bytes")
    for name in ("site", "largest / median channel", *coders):
        table.add_column(name, justify="left" if name == "site" else "right")
    for row in results["tensors"]:
        errors = [f"{row['codes'][f'{coder} 2']['error']:.3f}" for coder in coders]
        table.add_row(row["site"], f"{row['largest_over_median_channel']:.0f}", *errors)
    for kind, found in results["gradient"].items():
        table.add_row(f"gradient, {kind}", "", *(f"{found[f'{c} 2']:.3f}" for c in coders))
    Console(width=140).print(table)


if __name__ == "__main__":
    typer.run(main)
