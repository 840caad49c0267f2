"""Two processes that train one model: both store every tensor with the same bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import actzip
from processes import in_two_processes


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 10),
    )  # fmt: skip


def _bounds(kind: str, method: actzip.Method, rank: int) -> dict[str, Any]:
    """The bounds after some steps on data that the ranks do not share."""
    model: nn.Module = _model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    if kind == "wrapped":
        model = DistributedDataParallel(model)
        session = actzip.compress(model, method=method, optimizer=optimizer)
    else:
        session = actzip.compress(model, method=method, optimizer=optimizer)
        model = model if kind == "alone" else DistributedDataParallel(model)
    rng = torch.Generator().manual_seed(rank)
    for _ in range(4):
        x = torch.randn(16, 1, 8, 8, generator=rng) * (1 + rank)
        y = torch.randint(0, 10, (16,), generator=rng)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    errors: dict[str, Any] = session._policy._errors  # type: ignore[attr-defined]
    return {name.removeprefix("module."): e.tolist() for name, e in errors.items()}


def _run(rank: int, kind: str) -> None:
    for method in (actzip.ACGC(), actzip.Comet(interval=1, scope="all")):
        ours = _bounds(kind, method, rank)
        everyone: list[dict[str, Any]] = [{}, {}]
        dist.all_gather_object(everyone, ours)
        assert len(ours) == 4
        assert (everyone[0] == everyone[1]) is (kind != "alone"), f"{kind}, {method}"


@pytest.mark.parametrize("kind", ["wrapped", "inside", "alone"])
def test_processes_agree_on_the_bounds_of_a_model_they_share(kind: str, tmp_path: Path) -> None:
    in_two_processes(tmp_path, _run, kind)


def test_the_strictest_bound_of_all_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    from actzip.control import distributed

    given = [
        {"a": np.array([1.0]), "b": np.array([1.0, 4.0])},
        {"a": np.array([2.0]), "b": np.array([3.0, 2.0]), "c": np.array([7.0])},
    ]

    def gather(everyone: list[Any], mine: Any) -> None:
        everyone[:] = given

    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "all_gather_object", gather)
    found = {name: bound.tolist() for name, bound in distributed.strictest(given[0]).items()}
    assert found == {"a": [1.0], "b": [1.0, 2.0], "c": [7.0]}
