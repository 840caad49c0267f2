"""grow_batch: the batch grows into the memory that is there, and no step passes the limit."""

from __future__ import annotations

import resource
from typing import Any

import pytest
import torch
from torch import nn

import actzip
from actzip.growth import Growth
from actzip.memory.fresh_process import call_fresh
from actzip.memory.measure import reset_resident_peak, resident

MIB = 1 << 20


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(16):
        layers += [nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers)


def _steps(model: nn.Module, optimizer: torch.optim.Optimizer, batch: int, steps: int = 2) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(batch, 8, 64, 64)).square().mean().backward()
        optimizer.step()


def _setting(method: str) -> tuple[nn.Module, torch.optim.Optimizer, actzip.Session]:
    torch.set_num_threads(1)
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    warm = torch.zeros(1, 8, 64, 64)
    model(warm).sum().backward()  # oneDNN loads its kernels
    return model, optimizer, actzip.compress(model, method=method, optimizer=optimizer)


def _grown(method: str, budget: int) -> dict[str, Any]:
    model, optimizer, session = _setting(method)
    held = resident("VmRSS")
    assert held is not None
    growth = actzip.grow_batch(session, limit=held + budget, start=4, cap=4096)
    sizes, peaks = [], []
    for _ in range(5):
        reset_resident_peak()
        _steps(model, optimizer, growth.batch)
        sizes.append(growth.batch)
        peaks.append(resident("VmHWM"))
        growth.propose()
    return {"sizes": sizes, "peaks": peaks, "limit": growth.limit, "last": growth.batch}


def test_no_step_of_a_growing_run_takes_more_than_the_limit() -> None:
    runs = {name: call_fresh(_grown, name, 320 * MIB) for name in ("lossless", "fixed")}
    for run in runs.values():
        assert max(run["peaks"]) <= run["limit"]
        assert all(b & (b - 1) == 0 for b in run["sizes"])
        assert run["sizes"][-1] > 4
        assert max(run["peaks"]) > 0.4 * run["limit"], "it makes use of what is there"
    at = {n: dict(zip(run["sizes"], run["peaks"], strict=True)) for n, run in runs.items()}
    assert at["fixed"][32] < at["lossless"][32], "fewer bytes stored leave room for more samples"


def _limited(batch: int | None) -> str:
    """Under a limit that the kernel keeps: a fixed batch, or one that grows.

    `grow_batch` promises resident memory. The kernel's limit counts addresses, also those that
    malloc holds free between blocks in use: it is set half as high again.
    """
    model, optimizer, session = _setting("fixed")
    data, held = resident("VmData"), resident("VmRSS")
    assert data is not None
    assert held is not None
    budget = 320 * MIB
    most = data + budget * 3 // 2
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    growth = actzip.grow_batch(session, limit=held + budget, start=4)
    try:
        for _ in range(4):
            _steps(model, optimizer, batch or growth.batch)
            growth.propose()
    except (RuntimeError, MemoryError):
        return "out of memory"
    return f"ran with {growth.batch}"


def test_a_run_under_a_limit_of_the_kernel_grows_and_survives() -> None:
    assert call_fresh(_limited, 512) == "out of memory"
    said = call_fresh(_limited, None)
    assert said.startswith("ran with ")
    assert int(said.removeprefix("ran with ")) > 4


def _fake(peaks: dict[int, int], base: int, limit: int, cap: int | None = None) -> Growth:
    session = actzip.compress(_model(), method="fixed")
    growth = actzip.grow_batch(session, limit=1 << 50, start=4, cap=cap)
    growth.peaks, growth.base, growth.limit = dict(peaks), base, limit
    return growth


def test_with_one_size_known_everything_counts_as_growing() -> None:
    growth = _fake({4: 140}, base=100, limit=1000)
    assert growth.expected(8) == 180
    assert growth.expected(4) == 140
    assert growth.expected(2) == 120


def test_with_two_sizes_known_their_difference_decides() -> None:
    growth = _fake({4: 180, 8: 200}, base=100, limit=1000)
    assert growth.expected(16) == pytest.approx(200 + 8 * 5 * 1.1)


def test_a_proposal_needs_a_step() -> None:
    model = _model()
    session = actzip.compress(model, method="fixed")
    growth = actzip.grow_batch(session, limit="64GiB", start=2, cap=16)
    with pytest.raises(RuntimeError, match="no step has run with a batch of 2"):
        growth.propose()
    model(torch.randn(2, 8, 16, 16)).sum().backward()
    assert growth.propose() == 16, "the cap"
    assert growth.rate("linear") == 8
    assert growth.rate("sqrt") == pytest.approx(8**0.5)
    assert growth.rate("none") == 1
    assert "batch 16" in repr(growth)


def test_a_batch_that_came_too_close_to_the_limit_is_halved() -> None:
    model = _model()
    session = actzip.compress(model, method="fixed")
    held = resident("VmRSS")
    assert held is not None
    growth = actzip.grow_batch(session, limit=held * 2, start=8)
    model(torch.randn(8, 8, 16, 16)).sum().backward()
    growth.limit = int(held * 1.01)  # less than 5 % above what there is
    assert growth.propose() < 8


def test_wrong_arguments_are_refused() -> None:
    session = actzip.compress(_model(), method="fixed")
    for limit in ("much", "-4GiB", True, 0):
        with pytest.raises(ValueError, match="memory limit"):
            actzip.grow_batch(session, limit=limit, start=4)
    with pytest.raises(ValueError, match="start"):
        actzip.grow_batch(session, limit="4GiB", start=0)
    with pytest.raises(ValueError, match="below start"):
        actzip.grow_batch(session, limit="4GiB", start=8, cap=4)
    with pytest.raises(ValueError, match="raise the limit"):
        actzip.grow_batch(session, limit="1MiB", start=8)
    growth = actzip.grow_batch(session, limit="64GiB", start=8)
    with pytest.raises(ValueError, match="linear, sqrt, none"):
        growth.rate("cubic")
