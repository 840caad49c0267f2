"""How much of a convolution's gradient the low frequencies of its input carry: DIVISION's claim.

    python benchmarks/frequency.py                            # ResNet-20 on CIFAR-10, some minutes
    python benchmarks/frequency.py --data digits --steps 20   # does it run?

The gradient of a convolution's weight is linear in the saved input, so it splits as the input
does: into that of the block averages (low frequencies, 1/64 of the numbers) and that of what is
left without them (high frequencies). For each convolution of the trained network: the cosine
between each part and the exact gradient, and the relative error when only that part is kept;
beside them both parts in DIVISION's code, averages in bfloat16 and 2 bits for the rest.

A second table has the error and the bits of codes for those inputs that a ReLU made. Prints the
tables and writes results/frequency.json and docs/pictures/frequency.png (of the default data only).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import matplotlib
import torch
import torch.nn.functional as F
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from actzip.codecs import Codec, Dual, Group
from actzip.tasks.data import Data, load
from actzip.tasks.models.resnet import resnet20
from parts.results import write

matplotlib.use("agg")

from matplotlib import pyplot as plt

RESULTS = Path(__file__).parent / "results"
PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "frequency.png"
DATA = "cifar10"
BLOCK = 8
BATCH = 64
MEASURED = 4  #: batches over which gradients are compared

Part = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Row:
    layer: str
    size: int  #: side of the input's maps
    part: str
    energy: float  #: of the input, in this part
    cosine: float
    error: float  #: ‖g − g_part‖ / ‖g‖


def low(x: Tensor, block: int = BLOCK) -> Tensor:
    """Each block's average in place of its elements."""
    means = F.avg_pool2d(x, block, ceil_mode=True, count_include_pad=False)
    wide = means.repeat_interleave(block, 2).repeat_interleave(block, 3)
    return wide[..., : x.shape[2], : x.shape[3]]


def high(x: Tensor) -> Tensor:
    return x - low(x)


def both(x: Tensor) -> Tensor:
    """Both in DIVISION's code, with a code for the zeros of a ReLU."""
    codec = Dual(BLOCK, 2, zero=bool((x == 0).any()))
    return codec.decode(codec.encode(x))


PARTS: dict[str, Part] = {
    "low": low,
    "high": high,
    "both, coded": both,
    "low, blocks of 4": partial(low, block=4),
    "low, blocks of 2": partial(low, block=2),
}
STYLE = {"low": "#1f6feb", "high": "#d1495b", "both, coded": "#3a7d44"}  #: others are thin


def train(data: Data, steps: int, rng: torch.Generator) -> nn.Module:
    model = resnet20(len(data.classes), data.channels)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=steps)
    for _ in range(steps):
        x, y = data.train.batch(torch.randint(len(data.train), (BATCH,), generator=rng), rng)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        schedule.step()
    return model


@torch.no_grad()
def accuracy(model: nn.Module, data: Data) -> float:
    model.eval()
    x, y = data.test.batch(torch.arange(min(1000, len(data.test))))
    right = float((model(x).argmax(1) == y).float().mean())
    model.train()
    return right


def operands(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, tuple[nn.Conv2d, Tensor, Tensor]]:
    """Of each convolution in one step: the layer, its input, the gradient at its output."""
    found: dict[str, tuple[nn.Conv2d, Tensor, Tensor]] = {}

    def watch(name: str, layer: nn.Conv2d) -> torch.utils.hooks.RemovableHandle:
        def keep(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            given = inputs[0].detach().clone()  # a ReLU in place may edit it later
            output.register_hook(lambda g: found.__setitem__(name, (layer, given, g)))

        return layer.register_forward_hook(keep)

    convs = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.Conv2d)]
    handles = [watch(name, layer) for name, layer in convs]
    F.cross_entropy(model(x), y).backward()
    for handle in handles:
        handle.remove()
    return {name.removeprefix("stages."): found[name] for name, _ in convs}


def gradient(layer: nn.Conv2d, x: Tensor, gy: Tensor) -> Tensor:
    shape, stride, padding = layer.weight.shape, layer.stride, layer.padding
    assert isinstance(padding, tuple)
    g: Tensor = conv2d_weight(x, shape, gy, stride, padding)
    return g.flatten()


def compare(batch: dict[str, tuple[nn.Conv2d, Tensor, Tensor]]) -> list[Row]:
    rows = []
    for name, (layer, x, gy) in batch.items():
        exact = gradient(layer, x, gy)
        for part, take in PARTS.items():
            kept = take(x)
            g = gradient(layer, kept, gy)
            rows.append(
                Row(
                    name,
                    x.shape[2],
                    part,
                    float(kept.square().sum() / x.square().sum()),
                    float(F.cosine_similarity(g, exact, dim=0)),
                    float((g - exact).norm() / exact.norm()),
                )
            )
    return rows


#: Codes for what a ReLU made, and whether its mask stands beside them, in one more bit.
CODES: tuple[tuple[Codec, bool], ...] = (
    (Dual(BLOCK, 1), True),
    (Dual(BLOCK, 2, zero=True), False),
    (Dual(BLOCK, 2), True),
    (Dual(BLOCK, 3, zero=True), False),
    (Group(2, zero=True), False),
    (Group(2, 64, zero=True), False),
)


def noise(inputs: list[Tensor]) -> list[dict[str, str | float]]:
    """Of each code: bits per element, and the error's share of the power, over all inputs."""
    rows: list[dict[str, str | float]] = []
    power = sum(float(x.square().sum()) for x in inputs)
    count = sum(x.numel() for x in inputs)
    for codec, mask in CODES:
        error, nbytes = 0.0, 0
        for x in inputs:
            payload = codec.encode(x)
            y = codec.decode(payload) * (x != 0) if mask else codec.decode(payload)
            error += float((x - y).square().sum())
            nbytes += payload.nbytes
        name = f"{codec!r}{' and a mask' if mask else ''}"
        rows.append({"code": name, "bits": 8 * nbytes / count + mask, "noise": error / power})
    return rows


def mean(batches: list[list[Row]]) -> list[Row]:
    """Row by row over the batches."""
    averaged = []
    for same in zip(*batches, strict=True):
        first, n = same[0], len(same)
        energy, cosine, error = (
            sum(getattr(row, name) for row in same) / n for name in ("energy", "cosine", "error")
        )
        averaged.append(Row(first.layer, first.size, first.part, energy, cosine, error))
    return averaged


def show(rows: list[Row]) -> Table:
    table = Table("layer", "maps", title="what is left of each layer's gradient")
    for part in STYLE:
        table.add_column(f"{part}: cosine", justify="right")
        table.add_column("error", justify="right")
    for layer in dict.fromkeys(row.layer for row in rows):
        own = [row for row in rows if row.layer == layer and row.part in STYLE]
        cells = [cell for row in own for cell in (f"{row.cosine:.3f}", f"{row.error:.3f}")]
        table.add_row(layer, f"{own[0].size}×{own[0].size}", *cells)
    return table


def draw(rows: list[Row], path: Path) -> None:
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 6.5), sharex=True)
    layers = list(dict.fromkeys(row.layer for row in rows))
    for part in PARTS:
        own = [row for row in rows if row.part == part]
        line = {"color": STYLE.get(part, "#8fb8f6"), "linewidth": 1.8 if part in STYLE else 0.8}
        top.plot([row.cosine for row in own], marker="o", markersize=3, label=part, **line)
        bottom.plot([row.error for row in own], marker="o", markersize=3, label=part, **line)
    top.set_ylabel("cosine with the exact gradient")
    bottom.set_ylabel("relative error")
    top.set_title(f"ResNet-20: the weight gradient from a part of each input, blocks of {BLOCK}")
    bottom.set_xticks(range(len(layers)), layers, rotation=60, ha="right", fontsize=8)
    top.legend()
    for axes in (top, bottom):
        axes.grid(alpha=0.3)
        axes.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main(data: str = DATA, steps: int = 600, seed: int = 0) -> None:
    torch.manual_seed(seed)
    rng = torch.Generator().manual_seed(seed)
    pictures = load(data, "classify", seed=seed)
    model = train(pictures, steps, rng)
    right = accuracy(model, pictures)
    indices = torch.randperm(len(pictures.train), generator=rng)[: MEASURED * BATCH]
    batches = [pictures.train.batch(chosen, rng) for chosen in indices.split(BATCH)]
    steps_of = [operands(model, x, y) for x, y in batches]
    rows = mean([compare(step) for step in steps_of])
    codes = noise([x for _, x, _ in steps_of[0].values() if x.min() == 0])
    console = Console()
    console.print(show(rows))
    for code in codes:
        console.print(f"{code['code']:40} {code['bits']:.2f} bits, noise {code['noise']:.4f}")
    console.print(f"trained for {steps} steps of {BATCH}, {right:.1%} right on test pictures")
    if data != DATA:
        return
    facts = {
        "data": data,
        "steps": steps,
        "batch": BATCH,
        "block": BLOCK,
        "accuracy": right,
        "rows": [asdict(row) for row in rows],
        "codes": codes,
    }
    write(RESULTS / "frequency.json", facts)
    draw(rows, PICTURE)
    console.print(f"written to {RESULTS.name}/frequency.json and {PICTURE.name}")


if __name__ == "__main__":
    typer.run(main)
