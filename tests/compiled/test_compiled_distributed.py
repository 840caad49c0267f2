"""Two gloo processes train a compiled model: gradients equal those without actzip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import actzip
from processes import in_two_processes


def _gradients(kind: str, rank: int, method: Any) -> tuple[list[Tensor], actzip.Session | None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(64, 128), nn.Dropout(0.2), nn.Linear(128, 128))
    session = None if method is None else actzip.compress(model, method, min_bytes=0)
    if kind == "ddp":
        call = torch.compile(nn.parallel.DistributedDataParallel(model), backend="aot_eager")
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (2,))
        fully_shard(model[0], mesh=mesh)  # type: ignore[index]
        fully_shard(model, mesh=mesh)
        call = torch.compile(model, backend="aot_eager")
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(rank))
    for step in range(2):
        torch.manual_seed(step)
        model.zero_grad()
        call(x).square().mean().backward()
    grads: list[Any] = [p.grad for p in model.parameters()]
    return [(g.full_tensor() if hasattr(g, "full_tensor") else g).clone() for g in grads], session


def _run(rank: int, kind: str) -> None:
    import warnings

    warnings.simplefilter("ignore")
    plain, _ = _gradients(kind, rank, None)
    ours, session = _gradients(kind, rank, "lossless")
    assert session is not None
    assert any(row.codec for row in session.stats().sites)
    assert all(torch.equal(a, b) for a, b in zip(ours, plain, strict=True))
    session.remove()
    ours, session = _gradients(kind, rank, actzip.ActNN(bits=8, interval=1))  # looks at each pass
    assert session is not None
    assert session.stats().ratio > 2
    assert not any(row.slot == "weight" and row.codec for row in session.stats().sites)
    off = sum(float((a - b).square().sum()) for a, b in zip(ours, plain, strict=True))
    assert off < 1e-3 * sum(float(g.square().sum()) for g in plain)
    session.remove()


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_processes_train_a_compiled_model(kind: str, tmp_path: Path) -> None:
    in_two_processes(tmp_path, _run, kind)
