"""Which kind of tensor does a coarse code hurt? One kind in the code, all others kept exactly.

    python benchmarks/sites.py                     # gradient noise, a minute
    python benchmarks/sites.py --train             # and accuracy, some half hour on two cores
    python benchmarks/sites.py --quick             # does it run? seconds, writes nothing

Noise: a case of accuracy.py is trained for 200 steps without compression; then
`session.gradient_noise` gives, for each kind of site and for 2, 3 and 4 bits in all of its tensors,
the variance and the squared bias that they add to the gradients, as shares of SGD's own variance.
Accuracy: a whole training with one kind in 2 bits; start the command twice to use two cores. Writes
results/sites_noise.json and results/sites.json.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

import accuracy
import actzip
from actzip import methods
from actzip.codecs.base import Codec
from actzip.control.statistics import Statistics
from actzip.memory.fresh_process import call_fresh
from actzip.methods.base import Method, Policy, Site
from actzip.tasks import engine
from actzip.tasks.method_spec import parse
from actzip.tasks.run_folder import Journal
from actzip.tasks.trainer import Trainer
from parts.results import write

RESULTS = Path(__file__).parent / "results"
#: A kind of site: node and, after a dot, slot. q, k and v of one projection are one tensor.
KINDS = {
    "linear": ("Addmm", "MmBackward", "Linear", "Convolution"),
    "norm": ("Norm",),
    "activation": ("Gelu", "Silu"),
    "query, key, value": ("Attention.query", "Attention.key", "Attention.value"),
    "attention result": ("Attention.output",),
    "all": ("",),
    "none": (),
}
BITS = (2, 3, 4)
#: Whole methods, whose noise is measured beside.
WHOLE = ("actnn", "actnn:bits=2.5", "actnn:bits=3", "division", "comet", "acgc")
_LEARN = 6  #: passes in which they learn


@dataclass(frozen=True)
class Partial(Method):
    """Another method at sites of one kind; all others are kept exactly.

    of    the other method, as on the command line, with ; between its options
    kind  of KINDS
    """

    of: str = "actnn"
    kind: str = "all"

    def start(self, optimizer: torch.optim.Optimizer | None) -> Policy:
        name, options = parse(self.of.replace(";", ","))
        return _Some(self.kind, methods.resolve(name, options).start(optimizer))


class _Some(Policy):
    def __init__(self, kind: str, inner: Policy):
        self._kind, self._inner = kind, inner
        self.history, self.slice_bytes = inner.history, inner.slice_bytes

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        return self._inner.codec(site, tensor) if is_kind(site, self._kind) else None

    def begin(self, step: int, statistics: Statistics) -> bool:
        return self._inner.begin(step, statistics)

    def state_dict(self) -> dict[str, Any]:
        return self._inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._inner.load_state_dict(state)


def is_kind(site: Site, kind: str) -> bool:
    parts = (each.partition(".") for each in KINDS[kind])
    return any(node in site.node and slot in site.slot for node, _, slot in parts)


methods.METHODS["partial"] = Partial  # in this process and in the fresh ones it starts


def code(bits: int) -> str:
    """The same number of bits in every layer; ActNN's groups, and its split over samples."""
    return f"actnn:bits={bits};per_layer=False"


@dataclass(frozen=True)
class Share:
    """What one kind, or a whole method, adds to the gradients, in units of SGD's own variance."""

    case: str
    kind: str  #: or the method
    bits: int | None
    variance: float
    bias: float
    ratio: float  #: of stored bytes, all other sites exact


def noise(case: str, steps: int, draws: int) -> list[Share]:
    config = accuracy.Job(case, "plain", 0).config(torch.get_num_threads(), False)
    data = engine.load(config)
    loop = engine.Loop(config, data, Journal(None))
    for _ in range(steps):
        loop._step(torch.randint(len(data.train), (config.batch,), generator=loop.shuffling))
    codes: list[tuple[str, int | None, Method]] = [
        (kind, bits, Partial(code(bits), kind)) for kind in KINDS if kind != "none" for bits in BITS
    ]
    codes += [(name, None, methods.resolve(*parse(name))) for name in WHOLE]
    batch = data.train.batch(torch.arange(2 * config.batch))
    return [
        Share(case, kind, bits, *shares(loop.trainer, method, batch, draws))
        for kind, bits, method in codes
    ]


def shares(
    trainer: Trainer, method: Method, batch: tuple[Any, Any], draws: int
) -> tuple[float, float, float]:
    """Added variance and squared bias over SGD's variance, and the ratio of stored bytes."""
    with actzip.compress(trainer.model, method, optimizer=trainer.optimizer) as session:
        for _ in range(_LEARN):
            F.cross_entropy(trainer.model(batch[0]), batch[1]).backward()
        total = session.gradient_noise(batch, draws=draws).total
        trainer.optimizer.zero_grad()
        return total.quantization / total.sgd, total.bias / total.sgd, session.stats().ratio


def train(job: accuracy.Job, threads: int, quick: bool = False) -> engine.Result:
    """As accuracy.train, in a process that knows `partial`."""
    return accuracy.train(job, threads, quick)


def shown(shares: list[Share], runs: list[dict[str, Any]]) -> Table:
    """Noise per kind and bits, and the accuracy of 2 bits against the same run with none."""
    finals: dict[str, dict[int, float]] = {}
    for run in runs:
        finals.setdefault(run["options"]["kind"], {})[run["seed"]] = 100 * run["final"]
    made = Table(title="one kind of site in the code: noise over SGD's own, accuracy in 2 bits")
    for name in ("kind", *(f"{bits} bits" for bits in BITS), "accuracy", "minus none"):
        made.add_column(name, justify="left" if name == "kind" else "right")
    plain = finals.get("none", {})
    for kind in KINDS:
        cells = [f"{s.variance + s.bias:.1%}" for s in shares if s.kind == kind]
        own = finals.get(kind, {})
        lost = [own[seed] - plain[seed] for seed in own if seed in plain]
        made.add_row(
            kind,
            *(cells or [""] * len(BITS)),
            f"{statistics.mean(own.values()):.2f}" if own else "",
            f"{statistics.mean(lost):+.2f}" if lost else "",
        )
    for share in shares:
        if share.bits is None:
            made.add_row(f"{share.kind}, {share.ratio:.1f}×", f"{share.variance + share.bias:.1%}")
    return made


def main(
    case: Annotated[str, typer.Option(help="Of accuracy.py.")] = "fashion-vit",
    training: Annotated[bool, typer.Option("--train", help="Accuracy as well.")] = False,
    seeds: Annotated[str, typer.Option(help="Separated by commas.")] = "0,1,2",
    quick: Annotated[bool, typer.Option(help="A few steps, nothing is kept.")] = False,
) -> None:
    """Measure, then print one table."""
    console = Console(width=120)
    if quick:
        call_fresh(train, accuracy.Job(case, "partial", 0, {"of": code(2), "kind": "all"}), 1, True)
        console.print(shown(noise(case, 2, 2), []))
        return
    book = accuracy.Book(RESULTS / "sites.json")
    if training:
        todo = [
            accuracy.Job(case, "partial", int(seed), {"of": code(2), "kind": kind})
            for seed in seeds.split(",")
            for kind in KINDS
        ]
        accuracy.work(todo, book, 1, console, train)
        shares = [
            Share(**s) for s in json.loads((RESULTS / "sites_noise.json").read_text())["shares"]
        ]
    else:
        shares = noise(case, 200, 12)
        write(RESULTS / "sites_noise.json", {"shares": [asdict(s) for s in shares]})
    console.print(shown(shares, [run for run in book.runs() if run["case"] == case]))


if __name__ == "__main__":
    typer.run(main)
