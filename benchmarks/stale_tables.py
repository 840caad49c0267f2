"""What `auto` pays for tables of codes that are as old as its last look, as it has them on a GPU.

    python benchmarks/stale_tables.py            # writes results/stale_tables.json

Two small networks are trained on the CPU with the tables of the last look. Each tensor is coded
once more with a table of its own; bytes of a pass are compared. Table sizes and all else count.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn

import actzip
from actzip.codecs import Dithered
from actzip.methods import auto_codes
from actzip.tasks import digits
from actzip.tasks.models.decoder import Decoder
from actzip.tasks.models.resnet import cifar_resnet
from parts.results import FOLDER, write

Batch = tuple[Tensor, Tensor]
_sizes: dict[str, int] = defaultdict(int)
_coded = Dithered._coded


def _both(self: Dithered, x: Tensor, seed: int, allocate: Any) -> Any:
    found = _coded(self, x, seed, allocate)
    if self.table and found is not None:
        own = _coded(
            Dithered(self.error, self.channel_dim, self.origin, self.coarser), x, seed, allocate
        )
        if own is not None:
            _sizes["given"] += found.data.numel()
            _sizes["own"] += own.data.numel()
    return found


def resnet() -> tuple[nn.Module, Any]:
    data = digits.load(32)

    def batch() -> Batch:
        some = torch.randint(len(data.train_y), (64,))
        return data.train_x[some], data.train_y[some]

    return cifar_resnet(8, channels=1), batch


def gpt() -> tuple[nn.Module, Any]:
    pages = sorted(Path(__file__).parent.parent.glob("docs/*.md"))
    text = torch.tensor([*b"".join(p.read_bytes() for p in pages)])

    def batch() -> Batch:
        at = torch.randint(len(text) - 65, (16, 1)) + torch.arange(65)
        return text[at[:, :-1]], text[at[:, 1:]]

    return Decoder(256, 64, 128, 3, 4, dropout=0.0), batch


def main(steps: int = 160) -> None:
    Dithered._coded = _both  # type: ignore[method-assign]
    # as if the host had to wait for counts: tables are those of the last look
    auto_codes.unsettled = SimpleNamespace(reading_is_free=lambda device: False)  # type: ignore
    found = {}
    for name, make in (("resnet8 on digits", resnet), ("gpt on text", gpt)):
        torch.manual_seed(0)
        model, batch = make()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        each: list[float] = []
        with actzip.compress(model, "auto", optimizer=optimizer):
            for _ in range(steps):
                _sizes.clear()
                x, y = batch()
                F.cross_entropy(model(x).flatten(0, -2), y.flatten()).backward()
                optimizer.step()
                optimizer.zero_grad()
                if _sizes["own"]:
                    each.append(_sizes["given"] / _sizes["own"])
        found[name] = {
            "steps": len(each),
            "mean": round(statistics.mean(each), 4),
            "largest": round(max(each), 4),
            "second_half_mean": round(statistics.mean(each[len(each) // 2 :]), 4),
        }
        print(name, found[name], flush=True)
    write(FOLDER / "stale_tables.json", {"bytes_given_over_own": found})


if __name__ == "__main__":
    typer.run(main)
