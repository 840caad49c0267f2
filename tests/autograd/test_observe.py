"""Looks at backward: what they cost, what they hold, and that nothing they meet ends a run."""

from __future__ import annotations

import copy
import gc
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from looking import Looking, batch, convnet, of
from torch import Tensor, nn

import actzip
from actzip.autograd import observe


@pytest.fixture
def session() -> Iterator[actzip.Session]:
    """Of the convnet, looked at in every step."""
    model = convnet()
    made = actzip.compress(model, Looking(), min_bytes=0)
    made.model = model  # type: ignore[attr-defined]  # held for the test
    yield made
    made.remove()


# -- cost -------------------------------------------------------------------------------------


def test_a_pass_that_is_not_looked_at_has_no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []
    init = observe._Look.__init__

    def counted(self: Any, *args: Any) -> None:
        looks.append(self)
        init(self, *args)

    monkeypatch.setattr(observe._Look, "__init__", counted)
    model = convnet()
    with actzip.compress(model, Looking(steps=(1,)), min_bytes=0):
        counts = []
        for _ in range(3):
            model(batch()).sum().backward()
            counts.append(len(looks))
    assert counts[0] == 0
    assert counts[1] == counts[2] == 5  # two convolutions, batch norm, SiLU, linear


def test_looking_changes_no_gradient() -> None:
    model, x = convnet(), batch()
    found = []
    for steps in ((), None):
        twin = copy.deepcopy(model)
        with actzip.compress(twin, Looking(steps), min_bytes=0):
            twin(x).square().sum().backward()
        found.append([p.grad for p in twin.parameters()])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_the_streams_of_random_numbers_are_untouched(session: Any) -> None:
    def streams() -> tuple[bytes, Any, str]:
        numbers = repr(np.random.get_state())
        return torch.get_rng_state().numpy().tobytes(), random.getstate(), numbers

    before = streams()
    session.model(batch()).softmax(-1).sum().backward()
    assert streams() == before


# -- memory -----------------------------------------------------------------------------------


def tensors() -> int:
    return sum(issubclass(type(o), Tensor) for o in gc.get_objects())


def test_two_hundred_looks_leave_nothing_behind(session: Any) -> None:
    model, x = session.model, batch(2)
    for _ in range(2):
        model(x).sum().backward()
    gc.collect()
    gc.disable()  # nothing may depend on the cycle collector
    try:
        before = tensors()
        for step in range(200):
            loss = model(x).sum()
            if step % 2:
                loss.backward()
            del loss
            assert session.live_bytes == 0, step
        assert tensors() <= before + 8, "readings are replaced, not collected"
    finally:
        gc.enable()


def test_a_graph_that_outlives_its_backward_holds_nothing() -> None:
    """The loss is kept until the next step in most loops: the hooks live as long."""
    x = torch.randn(61, 61, requires_grad=True)
    other = torch.randn(61, 61) + 5
    gc.collect()
    with actzip.compress(method=Looking(), min_bytes=0):
        y = (x * 2) / other  # `other` stays with autograd, beside a stored tensor
        loss = (y @ (x * 3)).sum()
    loss.backward()
    x.grad = None
    del y
    gc.collect()
    # x, other, the loss, and the leaf's bookkeeping: none of the 61·61 tensors of the graph
    held = [o for o in gc.get_objects() if type(o) is Tensor and o.numel() == 61 * 61]
    assert len(held) <= 2, [tuple(t.shape) for t in held]
    assert loss.grad_fn is not None


# -- values that are no numbers -----------------------------------------------------------------


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_bad_gradient_or_activation_is_not_remembered(session: Any, bad: float) -> None:
    model = session.model
    site = "0:ConvolutionBackward0.input"
    model(batch()).sum().backward()
    good = of(session, site)
    (model(batch()).sum() * bad).backward()
    x = batch()
    x[0, 0, 0, 0] = bad
    model(x).sum().backward()
    assert torch.equal(of(session, site).parameter, good.parameter)
    model(batch(seed=1)).sum().backward()
    assert of(session, site).is_finite()
    assert not torch.equal(of(session, site).parameter, good.parameter)
    assert not session._statistics.missing


def test_a_bad_gradient_does_not_stay_in_the_table_of_samples(session: Any) -> None:
    for factor in (1.0, torch.inf, torch.nan, 1.0):
        session.samples([0, 1, 2, 3])
        (session.model(batch()).sum() * factor).backward()
    known = session._statistics.recall("0:ConvolutionBackward0.input", torch.arange(4))
    assert known is not None
    assert known.isfinite().all()
    assert torch.allclose(known, of(session, "0:ConvolutionBackward0.input").parameter, rtol=1e-2)


# -- several backwards, several forwards --------------------------------------------------------


def test_a_second_backward_of_one_graph_tells_nothing_new(session: Any) -> None:
    loss = session.model(batch()).sum()
    loss.backward(retain_graph=True)
    first = of(session, "0:ConvolutionBackward0.input")
    loss.backward()
    assert torch.equal(of(session, "0:ConvolutionBackward0.input").parameter, first.parameter)


def test_two_forwards_before_one_backward_give_the_reading_of_the_second(session: Any) -> None:
    model = session.model
    for norm in model.modules():
        norm.track_running_stats = False
    together = model(batch(4, seed=1)).sum() + model(batch(6, seed=2)).sum()
    together.backward()
    found = of(session, "3:ConvolutionBackward0.input")
    model(batch(6, seed=2)).sum().backward()
    alone = of(session, "3:ConvolutionBackward0.input")
    assert found.parameter.shape == (6,)
    assert torch.allclose(found.parameter, alone.parameter, rtol=1e-3)


def test_batches_of_any_size(session: Any) -> None:
    for n in (5, 1, 8):
        if n == 1:
            session.model[1].eval()
        session.model(batch(n)).sum().backward()
        assert of(session, "3:ConvolutionBackward0.input").parameter.shape == (n,)


def test_an_empty_batch() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8))
    with actzip.compress(model, "actnn", min_bytes=0):
        model(torch.randn(0, 64)).sum().backward()
        base = torch.randn(4096, 64)
        model(base[:0]).sum().backward()
    grad = model[0].get_parameter("weight").grad
    assert grad is not None
    assert float(grad.abs().sum()) == 0


# -- exceptions ---------------------------------------------------------------------------------


def test_no_exception_of_a_look_ends_a_run(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(observe, "error_weights", broken)
    session.model(batch()).sum().backward()
    assert all(p.grad is not None for p in session.model.parameters())
    assert "ZeroDivisionError: on purpose" in next(iter(session._statistics.missing.values()))
