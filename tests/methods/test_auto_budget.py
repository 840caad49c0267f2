"""auto with budget=: the peak of a pass stays within it, or it is said what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from digit_run import assert_resumes, batches, resnet, sgd, step
from torch import Tensor, nn

import actzip
from actzip.memory.step_peak import StepPeak, held, held_by


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors; the suite has a process for each core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _batch(data: Iterator[tuple[Tensor, Tensor]], size: int) -> tuple[Tensor, Tensor]:
    x, y = next(data)
    return x.repeat(size // len(x), 1, 1, 1), y.repeat(size // len(y))


def _peak(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> int:
    """Bytes at the peak of a pass, measured from outside."""
    optimizer.zero_grad()
    base = held_by(model, optimizer)
    with actzip.measure() as found:
        F.cross_entropy(model(x), y).backward()
    optimizer.step()
    return base + found.live_peak


def _run(
    steps: int, size: int = 128, **options: Any
) -> tuple[nn.Module, torch.optim.Optimizer, actzip.Session, Iterator[tuple[Tensor, Tensor]]]:
    model = resnet()
    optimizer = sgd(model)
    data = batches()
    session = actzip.compress(model, method="auto", optimizer=optimizer, **options)
    for _ in range(steps):
        step(model, optimizer, *_batch(data, size))
    return model, optimizer, session, data


def _plain_peak(size: int = 128) -> int:
    model = resnet()
    optimizer = sgd(model)
    data = batches()
    step(model, optimizer, *_batch(data, size))
    return _peak(model, optimizer, *_batch(data, size))


def test_the_peak_is_within_the_budget_and_uses_it() -> None:
    plain = _plain_peak()
    tight = int(plain * 0.72)
    model, optimizer, session, data = _run(8, budget=tight)
    peak = _peak(model, optimizer, *_batch(data, 128))
    assert 0.8 * tight <= peak <= tight
    assert session.stats().ratio > 1.5
    assert 0 < session.metrics()["noise_predicted"] < 0.2


def test_with_room_for_all_tensors_as_they_are_it_stays_lossless() -> None:
    model, _, session, data = _run(6, size=32, budget="1GiB")
    assert not any("Dithered" in row.codec for row in session.stats().sites)
    assert session.report().endswith("none, the budget has room for exact tensors\n")
    twin = resnet()
    twin.load_state_dict(model.state_dict())
    x, y = next(data)
    for each in (model, twin):
        each.zero_grad()
        F.cross_entropy(each(x), y).backward()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert p.grad is not None
        assert q.grad is not None
        assert torch.equal(p.grad, q.grad)


def test_a_larger_batch_ends_the_lossless_time_with_a_word() -> None:
    model, optimizer, session, data = _run(6, size=32, budget=int(_plain_peak() * 0.72))

    def train() -> None:
        for _ in range(9):
            step(model, optimizer, *_batch(data, 128))

    with pytest.warns(actzip.ActzipWarning, match="from now on they are coded"):
        train()
    assert any("Dithered" in row.codec for row in session.stats().sites)


def test_what_cannot_be_met_is_said_with_what_would_help() -> None:
    plain = _plain_peak()
    weights = held([*resnet().parameters()])
    budget = weights + (plain - weights) // 50
    with pytest.warns(actzip.ActzipWarning, match=r"(?s)cannot be met.*torch.utils.checkpoint"):
        _run(5, budget=budget)


def test_longer_inputs_get_coarser_codes_instead_of_more_bytes() -> None:
    model, optimizer, session, data = _run(7, budget=int(_plain_peak() * 0.72))
    stored = session.stats().stored_bytes
    step(model, optimizer, *_batch(data, 160))
    assert session.stats().stored_bytes < 1.1 * stored
    with pytest.warns(actzip.ActzipWarning, match="codes of such passes are coarser"):
        step(model, optimizer, *_batch(data, 128))
    assert session.stats().stored_bytes == pytest.approx(stored, rel=0.1)


@pytest.mark.parametrize("guard", [False, True])
def test_a_budget_below_the_weights_is_refused_before_any_step(guard: bool) -> None:
    model = resnet()
    with pytest.raises(ValueError, match=r"the weights alone take .* Raise it"):
        actzip.compress(model, method="auto", budget=1000, guard=guard)
    assert actzip.session_of(model) is None
    with pytest.raises(ValueError, match="a memory limit is"):
        actzip.compress(model, method="auto", budget="much")


def test_without_a_measured_peak_the_usual_noise_is_kept_and_said() -> None:
    model = resnet()
    optimizer = sgd(model)
    data = batches()
    session = actzip.compress(model, method="auto", optimizer=optimizer, budget="1GiB")

    def train() -> None:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            for _ in range(5):
                step(model, optimizer, *next(data))

    with pytest.warns(actzip.ActzipWarning, match="could not be measured"):
        train()
    assert session.metrics()["noise_predicted"] <= 0.05


def test_a_resumed_run_goes_on_bit_for_bit() -> None:
    assert_resumes(actzip.Auto(budget=int(_plain_peak(32) * 0.92)), steps=6)


def test_a_pass_without_a_backward_has_no_peak_and_leaves_nothing_behind() -> None:
    model = nn.Linear(64, 64)
    meter = StepPeak()
    meter.begin(model, None, stored=0)
    model(torch.randn(8, 64))
    assert meter.end() is None
    assert not any(p._backward_hooks for p in model.parameters())
    meter.begin(model, None, stored=100)
    model(torch.randn(1024, 64)).square().sum().backward()
    peak = meter.end()
    assert peak is not None
    # weights, bias, 100, and at least output and its gradient
    assert 4 * (64 * 65 + 2 * 1024 * 64) + 100 < peak < 4 * (3 * 64 * 65 + 7 * 1024 * 64)
    with actzip.measure():  # the profiler is free again
        pass
