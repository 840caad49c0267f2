"""How much smaller the stored activations are, per method, on networks of the usual sizes.

    python benchmarks/ratios.py                                  # everything, many minutes
    python benchmarks/ratios.py --model resnet50 --method actnn
    python benchmarks/ratios.py --tiny                           # does it run? seconds

ResNet-50 and ViT-S/16 on real pictures at 224², batch 16; a BERT-style encoder (width 256, 4
layers, 128 words) on movie reviews, batch 32. Each (model, method) runs in a fresh process: some
steps, so that what adapts has adapted, and then the report of one more. Writes every site of that
step to results/ratios.json (not when tiny).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import actzip
from actzip import methods
from actzip.memory.fresh_process import call_fresh
from actzip.memory.measure import size
from actzip.tasks.data import load
from actzip.tasks.method_spec import label, parse
from actzip.tasks.models.encoder import Encoder
from actzip.tasks.models.resnet import resnet50
from actzip.tasks.models.vit import ViT
from parts.machine import about
from parts.networks import pictures

RESULTS = Path(__file__).parent / "results" / "ratios.json"
MODELS = ("resnet50", "vit_s16", "bert")
METHODS = ("actnn:bits=2", "division", "actnn:bits=2.5", "actnn:bits=3")


@dataclass(frozen=True)
class Job:
    model: str
    method: str
    steps: int
    tiny: bool


def build(job: Job) -> tuple[nn.Module, tuple[Tensor, ...], Tensor]:
    torch.manual_seed(0)
    if job.model == "bert":
        length, batch = (16, 4) if job.tiny else (128, 32)
        data = load("movie-reviews", "text", limit=max(64, batch), length=length)
        shape = (32, 1, 2) if job.tiny else (256, 4, 4)
        model = Encoder(data.vocabulary, length, *shape, classes=len(data.classes))
        x, y = data.train.batch(torch.arange(batch))
        return model, (x,), y
    x, y = pictures(4 if job.tiny else 16, 32 if job.tiny else 224)
    if job.model == "resnet50":
        return resnet50(width=4 if job.tiny else 64), (x,), y
    return (ViT(32, 8, 16, 2, 2) if job.tiny else ViT()), (x,), y


def run(job: Job) -> dict[str, Any]:
    """The report of the last of some steps; called in a fresh process."""
    model, inputs, y = build(job)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    name, options = parse(job.method)
    method = methods.METHODS[name](**options)
    session = actzip.compress(model, method=method, optimizer=optimizer)
    for _ in range(job.steps):
        loss = F.cross_entropy(model(*inputs), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    stats = session.stats()
    return {
        "model": job.model,
        "method": label(name, options),
        "settings": repr(method),
        "batch": len(y),
        "steps": job.steps,
        "raw_bytes": stats.raw_bytes,
        "stored_bytes": stats.stored_bytes,
        "ratio": stats.ratio,
        "loss": loss.item(),
        "sites": [
            {
                "name": row.name,
                "raw_bytes": row.raw_bytes,
                "stored_bytes": row.stored_bytes,
                "codec": row.codec,
                "shared_with": row.shared_with,
                "reason": row.reason,
            }
            for row in stats.sites
        ],
    }


def table(runs: list[dict[str, Any]]) -> Table:
    made = Table(title="stored activations")
    for name in ("model", "method", "plain", "stored", "ratio", "sites"):
        made.add_column(name, justify="left" if name in ("model", "method") else "right")
    for r in runs:
        sizes = (size(r["raw_bytes"]), size(r["stored_bytes"]))
        made.add_row(r["model"], r["method"], *sizes, f"{r['ratio']:.2f}×", str(len(r["sites"])))
    return made


def main(
    model: Annotated[list[str] | None, typer.Option(help="May be given several times.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="name or name:option=value,…")] = None,
    steps: Annotated[int, typer.Option(min=1)] = 6,
    tiny: Annotated[bool, typer.Option(help="Small models, nothing is kept.")] = False,
) -> None:
    """Run each method on each model, print the ratios and keep the reports."""
    runs = [
        call_fresh(run, Job(each, how, steps, tiny))
        for each in model or MODELS
        for how in method or METHODS
    ]
    if not tiny:
        known = json.loads(RESULTS.read_text())["runs"] if RESULTS.exists() else []
        runs = [{**run, "about": about()} for run in runs]
        new = {(r["model"], r["method"]) for r in runs}
        runs = [r for r in known if (r["model"], r["method"]) not in new] + runs
        runs.sort(key=lambda r: (MODELS.index(r["model"]), r["method"]))
        RESULTS.write_text(json.dumps({"runs": runs}, indent=1) + "\n")
    Console(width=120).print(table(runs))


if __name__ == "__main__":
    typer.run(main)
