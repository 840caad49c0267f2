"""DDP and FSDP2 with gloo on two processes: gradients equal those without actzip."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import actzip
from processes import in_two_processes


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 128), nn.LeakyReLU()
    )


def _full(parameter: Tensor) -> Tensor:
    grad: Any = parameter.grad
    return (grad.full_tensor() if hasattr(grad, "full_tensor") else grad).clone()


def _ddp(compressed: bool) -> tuple[nn.Module, actzip.Session | None]:
    model = _model()
    session = actzip.compress(model) if compressed else None
    return nn.parallel.DistributedDataParallel(model), session


def _fsdp(compressed: bool) -> tuple[nn.Module, actzip.Session | None]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = _model()
    mesh = init_device_mesh("cpu", (2,))
    for layer in (model[0], model[3]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, actzip.compress(model) if compressed else None


def _gradients(wrap: Callable[..., Any], rank: int, compressed: bool) -> list[Tensor]:
    model, session = wrap(compressed)
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(rank))
    found = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        torch.manual_seed(step)
        optimizer.zero_grad()
        model(x).square().sum().backward()
        found += [_full(p) for p in model.parameters()]
        optimizer.step()
    if session is not None:
        stats = session.stats()
        assert stats.ratio > 1.0
        assert session.live_bytes == 0
        assert not any(row.slot == "weight" and row.codec for row in stats.sites)
    return found


def _run(rank: int, kind: str) -> None:
    wrap = _ddp if kind == "ddp" else _fsdp
    plain = _gradients(wrap, rank, False)
    ours = _gradients(wrap, rank, True)
    assert len(plain) == len(ours) == 8
    for a, b in zip(ours, plain, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_processes_train_bit_for_bit(kind: str, tmp_path: Path) -> None:
    in_two_processes(tmp_path, _run, kind)
