"""Sums over the passes of a training step, and the most that was stored at once."""

from __future__ import annotations

import copy
import gc
import json
import math
import pickle
import weakref

import pytest
import torch
from torch import Tensor, nn

import actzip


def model_of() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh())


def x_of(rows: int = 64) -> Tensor:
    return torch.randn(rows, 64)


def numbers(session: actzip.Session) -> tuple[int, int]:
    found = session.totals()
    assert found.raw_bytes == sum(row.raw_bytes for row in found.sites) + found.small_bytes
    assert found.stored_bytes == sum(row.stored_bytes for row in found.sites) + found.small_bytes
    return found.passes, found.raw_bytes


def test_with_an_optimizer_the_passes_of_an_accumulation_add_up_until_the_next_step_begins() -> (
    None
):
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with actzip.compress(model, "fixed", optimizer=optimizer) as session:
        raw = []
        for step in range(3):
            for _ in range(4):
                model(x_of()).sum().backward()
                raw.append(session.stats().raw_bytes)
            assert numbers(session) == (4, sum(raw[-4:]))
            optimizer.step()
            assert numbers(session) == (4, sum(raw[-4:]))  # a logger asks after the step
            assert session.step == 4 * (step + 1)
        model(x_of(128)).sum().backward()
        assert numbers(session) == (1, session.stats().raw_bytes)
    rows = {row.name: row for row in session.totals().sites}
    assert len(rows) == len(session.totals().sites)


def test_without_an_optimizer_passes_whose_graphs_live_together_are_one_step() -> None:
    model = model_of()
    with actzip.compress(model, "fixed") as session:
        for _ in range(2):
            first, second = model(x_of(64)), model(x_of(128))
            one, two = 64 * 64 * 4 * 3, 128 * 64 * 4 * 3
            assert numbers(session) == (2, one + two)
            assert session.stats().raw_bytes == two
            assert {row.count for row in session.totals().sites} == {2}
            (first.sum() + second.sum()).backward()
            assert numbers(session) == (2, one + two)
        model(x_of(64)).sum().backward()
        assert numbers(session) == (1, one)


def test_around_code_a_step_is_what_lies_between_two_backward_passes() -> None:
    w = torch.randn(64, 64, requires_grad=True)
    with actzip.compress(method="fixed") as session:
        for _ in range(3):
            torch.tanh(w).sum().backward()
        torch.tanh(torch.relu(w)).sum().backward()
        assert session.totals().passes == 1
        assert len(session.totals().sites) == 2
    optimizer = torch.optim.SGD([w], lr=0.1)
    with actzip.compress(method="fixed", optimizer=optimizer) as session:
        for _ in range(3):
            torch.tanh(w).sum().backward()
        assert session.totals().passes == 3


def test_the_peak_is_of_all_graphs_alive_and_the_steps_own_begins_anew() -> None:
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with actzip.compress(model, "fixed", optimizer=optimizer) as session:
        assert session.peak_stored_bytes == 0
        out = model(x_of())
        one = session.live_bytes
        assert session.peak_stored_bytes == one > 0
        both = out.sum() + model(x_of()).sum()
        assert session.peak_stored_bytes == session.live_bytes == 2 * one
        both.backward()
        del out, both
        optimizer.step()
        model(x_of()).sum().backward()
        told = session.metrics()
        assert (told["peak_stored_bytes"], told["step_peak_stored_bytes"]) == (2 * one, one)
        assert told["live_bytes"] == 0


def test_a_failed_pass_counts_nowhere() -> None:
    model = model_of()
    with actzip.compress(model, "fixed") as session:
        model(x_of()).sum().backward()
        before = session.metrics()
        with pytest.raises(RuntimeError):
            model(torch.randn(64, 3))
        assert {**session.metrics(), "step": 1.0} == before


def test_an_optimizer_neither_holds_the_session_nor_carries_it_along() -> None:
    model = model_of()
    optimizer = torch.optim.Adam(model.parameters())
    session = actzip.compress(model, optimizer=optimizer)
    assert len(optimizer._optimizer_step_post_hooks) == 1
    model(x_of()).sum().backward()
    optimizer.step()
    pickle.loads(pickle.dumps(optimizer))
    assert not copy.deepcopy(optimizer)._optimizer_step_post_hooks
    session.remove()
    assert not optimizer._optimizer_step_post_hooks
    session = actzip.compress(model, optimizer=optimizer)
    held = weakref.ref(session)
    del model, session
    gc.collect()
    assert held() is None
    optimizer.step()


def test_an_optimizer_by_name_only_is_as_none() -> None:
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, inner: torch.optim.Optimizer):
            self.inner = inner  # as wrappers do that never call super().__init__()

    model = model_of()
    optimizer = Wrapper(torch.optim.SGD(model.parameters(), lr=0.1))
    with actzip.compress(model, "fixed", optimizer=optimizer) as session:
        for _ in range(2):
            model(x_of()).sum().backward()
        assert session.totals().passes == 1


def test_metrics_are_finite_floats_that_json_takes() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
    with actzip.compress(model, "fixed", guard=True) as session:
        names = (
            *("step", "passes", "raw_bytes", "saved_bytes", "ratio", "live_bytes"),
            *("peak_stored_bytes", "step_peak_stored_bytes", "guard_level"),
        )
        assert session.metrics() == {**dict.fromkeys(names, 0.0), "ratio": 1.0}
        model(x_of()).sum().backward()
        found = session.metrics()
        assert set(found) == set(names)
        assert found["ratio"] == found["raw_bytes"] / found["saved_bytes"] > 4
        assert found["saved_bytes"] == session.totals().stored_bytes
        assert (found["step"], found["passes"]) == (1, 1)
        report = session.gradient_noise((x_of(), torch.randint(0, 4, (64,))), draws=2, parts=2)
        found = session.metrics()
        assert found["noise_share"] == report.total.share
        assert found["noise_bias"] == report.total.bias / report.total.signal
        assert found["passes"] == 1
    assert all(type(value) is float and math.isfinite(value) for value in found.values())
    assert json.loads(json.dumps(found, allow_nan=False)) == found
