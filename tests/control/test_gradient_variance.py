"""V from the gradients of three successive passes."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from actzip.control.gradient_variance import GradientVariance


def _gradients(p: nn.Parameter, noise: float, rng: torch.Generator) -> None:
    """A backward whose gradient is 3 and noise."""
    (p * (3 + noise * torch.randn(p.shape, generator=rng))).sum().backward()


@pytest.mark.parametrize("accumulate", [False, True])
def test_the_variance_is_found_whatever_is_accumulated(accumulate: bool) -> None:
    rng = torch.Generator().manual_seed(0)
    p = nn.Parameter(torch.zeros(200, 300))  # more than is kept of it
    found = GradientVariance()
    found.of([p])
    for _ in range(3):
        if not accumulate:
            p.grad = None
        found.begin(watch=True)
        _gradients(p, 0.5, rng)
    variances, size = found.result()
    assert variances[0] == pytest.approx(0.25 * p.numel(), rel=0.05)
    assert size == pytest.approx(9.25 * p.numel(), rel=0.05)


def _after(*gradients: float) -> GradientVariance:
    """Passes whose gradients are these numbers, four times."""
    p = nn.Parameter(torch.ones(4))
    found = GradientVariance()
    found.of([p])
    for factor in gradients:
        found.begin(watch=True)
        (p * factor).sum().backward()
    found.held = p  # type: ignore[attr-defined]
    return found


def test_a_drift_and_a_swing_are_no_variance() -> None:
    assert _after(1.0, 2.0, 3.0).result() == ({0: 0.0}, pytest.approx(4 * 14 / 3))
    assert _after(5.0, -5.0, 5.0).result() == ({0: 0.0}, 100.0)
    # 1, 4, 3: neighbours differ by 9 and 1, the ends by 4
    assert _after(1.0, 4.0, 3.0).result()[0] == {0: 4 * min(4 / 2, 2.5 - (2 - 2.5) / 3)}


def test_two_backwards_of_a_pass_add_up() -> None:
    p = nn.Parameter(torch.ones(4))
    found = GradientVariance()
    found.of([p])
    for factor in (1.0, 0.0, 2.0):
        found.begin(watch=True)
        (p * factor).sum().backward()
        (p * 2).sum().backward()
    assert found.result() == ({0: 2.0}, pytest.approx(4 * (9 + 4 + 16) / 3))


def test_few_gradients_or_an_overflow_tell_nothing() -> None:
    assert _after(1.0, 2.0).result() == ({}, 0.0)
    assert _after(1.0, 2.0, float("inf")).result() == ({}, 0.0)
    assert _after(1.0, float("nan"), 2.0).result() == ({}, 0.0)


def test_no_hook_stays_and_none_is_copied() -> None:
    model = nn.Linear(3, 3)
    found = GradientVariance()
    found.of(model.parameters())
    found.begin(watch=True)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not any(p._backward_hooks for p in other.parameters())
    found.begin(watch=False)
    assert not any(p._backward_hooks for p in model.parameters())


def test_frozen_and_unused_parameters_are_left_out() -> None:
    used, unused, frozen = (nn.Parameter(torch.ones(2)) for _ in range(3))
    frozen.requires_grad_(False)
    found = GradientVariance()
    found.of([unused, frozen, used])
    for factor in (1.0, 5.0, 3.0):
        found.begin(watch=True)
        (used * factor * frozen).sum().backward()
    assert found.result() == ({2: 4.0}, pytest.approx(70 / 3))
    assert found.place(used) == 2
    assert found.place(nn.Parameter(torch.ones(1))) is None
