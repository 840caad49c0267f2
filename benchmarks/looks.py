"""What a look costs: a backward pass whose gradients are read, against plain and usual steps.

    python benchmarks/looks.py                       # every network and method, some minutes
    python benchmarks/looks.py --network llama --method acgc

A plain model and a compressed one step in turn, in one process and on one thread, and CPU seconds
are taken: a busy machine then matters little. Live peaks are taken in a second run. Writes
results/looks.json.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn

import actzip
from actzip.memory.fresh_process import call_fresh
from actzip.memory.measure import measure
from actzip.tasks.models.decoder import Decoder
from actzip.tasks.models.resnet import cifar_resnet
from actzip.tasks.models.vit import ViT
from parts.machine import about
from parts.results import FOLDER, write

METHODS = ("actnn", "comet", "acgc", "auto")
TRACED = 12  #: steps whose live peaks are taken
MIB = 1 << 20

Step = Callable[[], object]


def resnet20() -> tuple[nn.Module, Step]:
    return _images(cifar_resnet(20), 128)


def vit() -> tuple[nn.Module, Step]:
    return _images(ViT(32, 4, 192, 6, 3), 32)


def gpt() -> tuple[nn.Module, Step]:
    model = Decoder(1024, 128, 256, 6, 8)
    ids = torch.randint(0, 1024, (8, 129))
    return model, lambda: F.cross_entropy(model(ids[:, :-1]).flatten(0, -2), ids[:, 1:].flatten())


def llama() -> tuple[nn.Module, Step]:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4}
    config = LlamaConfig(vocab_size=256, num_attention_heads=4, num_key_value_heads=2, **shape)
    model = LlamaForCausalLM(config)
    ids = torch.randint(0, 256, (4, 64))
    return model, lambda: model(input_ids=ids, labels=ids).loss


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
        return out


def mlp() -> tuple[nn.Module, Step]:
    model = nn.Sequential(*(Block(128) for _ in range(4)))
    x = torch.randn(1024, 128)
    return model, lambda: model(x).square().mean()


def _images(model: nn.Module, batch: int) -> tuple[nn.Module, Step]:
    x, y = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    return model, lambda: F.cross_entropy(model(x), y)


NETWORKS: dict[str, Callable[[], tuple[nn.Module, Step]]] = {
    "resnet20": resnet20,
    "llama": llama,
    "vit": vit,
    "gpt": gpt,
    "mlp": mlp,
}


@dataclass
class Found:
    """Of one network and method; CPU seconds, each a median, and bytes."""

    network: str
    method: str
    plain: float = 0.0
    usual: float = 0.0  #: a compressed step without a look
    look: float = 0.0  #: a step with a look, learning left out
    learn: float = 0.0  #: at the beginning of the first pass that knows of the look
    first_look: float = 0.0  #: the first step
    look_over_plain: float = 0.0  #: what a look adds to a usual step, in plain steps
    sites: int = 0
    looks: list[int] = field(default_factory=list)  #: the steps with a look
    plain_peak: int = 0
    usual_peak: int = 0
    look_peak: int = 0  #: the highest of all looks


class Run:
    """A model and its step; `looked` and `learned` are of the last one."""

    def __init__(self, network: str, method: str | None) -> None:
        torch.manual_seed(0)
        self.model, self.loss = NETWORKS[network]()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3, momentum=0.9)
        self.session = None
        self.looked, self.learned = False, 0.0
        if method is not None:
            self.session = actzip.compress(self.model, method, optimizer=self.optimizer)
            policy: Any = self.session._policy
            self._begin, policy.begin = policy.begin, self.begin

    def begin(self, *args: Any) -> bool:
        began = time.process_time()
        self.looked = self._begin(*args)
        self.learned = time.process_time() - began
        return self.looked

    def step(self) -> float:
        """CPU seconds."""
        began = time.process_time()
        loss: Any = self.loss()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.process_time() - began


def times(network: str, method: str, steps: int) -> Found:
    """Called in a fresh process."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    plain, ours = Run(network, None), Run(network, method)
    found = Found(network, method)
    seconds: dict[str, list[float]] = {"plain": [], "usual": [], "look": []}
    learned = []
    after = False
    for step in range(steps):
        seconds["plain"].append(plain.step())
        took = ours.step() - ours.learned
        if step == 0:
            found.first_look = took
        elif step > 1:  # the first ones of a process are slower
            seconds["look" if ours.looked else "usual"].append(took)
        if ours.looked:
            found.looks.append(step)
        if after or (method == "auto" and ours.learned > 1e-3):
            learned.append(ours.learned)
        after = ours.looked
    found.plain = statistics.median(seconds["plain"][2:])
    found.usual = statistics.median(seconds["usual"])
    found.look = statistics.median(seconds["look"])
    found.learn = statistics.median(learned)
    found.look_over_plain = (found.look - found.usual) / found.plain
    assert ours.session is not None
    found.sites = len(ours.session.stats().sites)
    return found


def peaks(network: str, method: str | None) -> tuple[list[int], list[bool]]:
    """The live peak of each step from the first on, and whether it was looked at; called in a
    fresh process."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    run = Run(network, method)
    gc.collect()
    borders, looked = [], []
    with measure() as m:
        began = time.time_ns()
        for _ in range(TRACED):
            run.step()
            borders.append((time.time_ns() - began) / 1e9)
            looked.append(run.looked)
    found, at = [], 0
    for border in borders:
        most = 0
        while at < len(m.timeline) and m.timeline[at][0] <= border:
            most = max(most, m.timeline[at][1])
            at += 1
        found.append(most)
    return found, looked


def main(
    network: Annotated[list[str] | None, typer.Option(help="May be given several times.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="May be given several times.")] = None,
    steps: Annotated[int, typer.Option(min=4)] = 40,
    out: Annotated[Path | None, typer.Option(help="Else results/looks.json.")] = None,
) -> None:
    """Measure every chosen network with every chosen method."""
    out = out or FOLDER / "looks.json"
    torch.set_num_threads(1)  # as in the processes that measure
    kept = json.loads(out.read_text())["results"] if out.exists() else []
    results = {(r["network"], r["method"]): r for r in kept}
    for net in network or NETWORKS:
        plain, _ = call_fresh(peaks, net, None)
        for name in method or METHODS:
            found: Found = call_fresh(times, net, name, steps)
            each, looked = call_fresh(peaks, net, name)
            found.plain_peak = max(plain)
            found.usual_peak = max(p for p, seen in zip(each, looked, strict=True) if not seen)
            found.look_peak = max(p for p, seen in zip(each, looked, strict=True) if seen)
            results[net, name] = {"about": about(), **asdict(found)}
            print(
                f"{net:9}{name:6} ms: plain {found.plain * 1e3:6.1f} usual {found.usual * 1e3:6.1f}"
                f" look {found.look * 1e3:6.1f} (+{found.look_over_plain:.2f} plain)"
                f" first {found.first_look * 1e3:6.1f} learn {found.learn * 1e3:5.1f}"
                f" for {found.sites} sites, {len(found.looks)} looks of {steps};"
                f" MiB: plain {found.plain_peak / MIB:.1f} usual {found.usual_peak / MIB:.1f}"
                f" look {found.look_peak / MIB:.1f}",
                flush=True,
            )
            write(out, {"results": list(results.values())})


if __name__ == "__main__":
    typer.run(main)
