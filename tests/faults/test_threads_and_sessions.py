"""Threads, several models, several sessions: no crosstalk; a blind forward warns."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from nets import convnet, loss_of
from torch import Tensor, nn

import actzip
from training import assert_equal, gradients


def _threaded(work: list[threading.Thread]) -> None:
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()


def test_models_in_threads_do_not_meet() -> None:
    models = [convnet(dropout=0.0) for _ in range(4)]
    expected = [gradients(copy.deepcopy(m), loss_of(i)) for i, m in enumerate(models)]
    sessions = [actzip.compress(m) for m in models]
    found: dict[int, dict[str, Tensor]] = {}

    def run(i: int) -> None:
        loss = loss_of(i)(models[i])
        loss.backward()
        found[i] = {n: p.grad for n, p in models[i].named_parameters() if p.grad is not None}

    _threaded([threading.Thread(target=run, args=(i,)) for i in range(4)])
    for i, session in enumerate(sessions):
        assert_equal(found[i], expected[i])
        assert session.step == 1
        assert session.stats().ratio > 1.0
        session.remove()


def test_one_model_run_by_two_threads_at_once() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.0), nn.LeakyReLU())
    x = torch.randn(64, 64, requires_grad=True)
    (expected,) = torch.autograd.grad(model(x).sum(), x)
    found = []
    with actzip.compress(model) as session:

        def run() -> None:
            for _ in range(20):
                found.append(torch.autograd.grad(model(x).sum(), x)[0])

        _threaded([threading.Thread(target=run) for _ in range(2)])
        assert session.step == 40
        assert session.live_bytes == 0
    assert all(torch.equal(g, expected) for g in found)


def test_two_sessions_report_their_own_models() -> None:
    a, b = convnet(), nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    with actzip.compress(a) as first, actzip.compress(b) as second:
        loss_of()(a)
        b(torch.randn(64, 64))
        assert {row.node for row in second.stats().sites} == {"AddmmBackward0", "ReluBackward0"}
        assert any(row.node == "ConvolutionBackward0" for row in first.stats().sites)


def test_a_forward_that_hides_its_ops_warns_once() -> None:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(64, 64))

        def forward(self, x: Tensor) -> Tensor:
            out: list[Tensor] = []
            thread = threading.Thread(target=lambda: out.append(torch.relu(x @ self.w)))
            thread.start()
            thread.join()
            return out[0].detach()

    model = Hidden()
    with actzip.compress(model):
        with pytest.warns(actzip.ActzipWarning, match="saw no saved tensor"):
            model(torch.randn(64, 64))
        model(torch.randn(64, 64))  # a second warning would fail the test


def test_a_forward_that_raised_or_trains_nothing_does_not_use_up_the_warning() -> None:
    class Moody(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(64, 64)
            self.mood = "raise"

        def forward(self, x: Tensor) -> Tensor:
            if self.mood == "raise":
                raise ValueError("bad mood")
            with torch.set_grad_enabled(self.mood != "hide"):
                return torch.relu(self.lin(x))

    model, x = Moody(), torch.randn(64, 64)
    with actzip.compress(model) as session:
        with pytest.raises(ValueError, match="bad mood"):
            model(x)
        with pytest.raises(RuntimeError, match="no forward pass has finished"):
            session.stats()
        model.requires_grad_(False)
        model.mood = "fine"
        model(x)  # a warning would fail the test
        assert session.stats().raw_bytes == 0
        model.lin.bias.requires_grad_(True)
        model.lin.weight.requires_grad_(False)
        model(x)
        model.mood = "hide"
        try:
            raise KeyError  # while the user handles an exception of his own
        except KeyError:
            with pytest.warns(actzip.ActzipWarning, match="saw no saved tensor"):
                model(x)


def test_a_with_block_that_raised_does_not_warn() -> None:
    session = actzip.compress()
    with pytest.raises(ValueError, match="early"), session:
        raise ValueError("early")


def test_a_recursive_call_is_one_forward() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(64, 64)

        def forward(self, x: Tensor, again: bool = True) -> Tensor:
            h = torch.relu(self.lin(x))
            return self(h, False) if again else torch.nn.functional.leaky_relu(h)

    model, x = Twice(), torch.randn(64, 64)
    expected = gradients(copy.deepcopy(model), lambda m: m(x).sum())
    with actzip.compress(model) as session:
        assert_equal(gradients(model, lambda m: m(x).sum()), expected)
        assert session.step == 1
