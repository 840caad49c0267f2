"""V from two gradients of successive passes."""

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
    for _ in range(2):
        if not accumulate:
            p.grad = None
        found.begin(watch=True)
        _gradients(p, 0.5, rng)
    variances, size = found.result()
    assert variances[0] == pytest.approx(0.25 * p.numel(), rel=0.05)
    assert size == pytest.approx(9.25 * p.numel(), rel=0.05)


def test_two_backwards_of_a_pass_add_up() -> None:
    p = nn.Parameter(torch.ones(4))
    found = GradientVariance()
    found.of([p])
    found.begin(watch=True)
    (p * 1).sum().backward()
    (p * 2).sum().backward()
    found.begin(watch=True)
    (p * 5).sum().backward()
    assert found.result() == ({0: 8.0}, 4 * (9 + 25) / 2)


def test_one_gradient_or_an_overflow_tells_nothing() -> None:
    p = nn.Parameter(torch.ones(4))
    found = GradientVariance()
    found.of([p])
    found.begin(watch=True)
    (p * 1).sum().backward()
    assert found.result() == ({}, 0.0)
    found.begin(watch=True)
    (p * float("inf")).sum().backward()
    assert found.result() == ({}, 0.0)


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
    for factor in (1.0, 3.0):
        found.begin(watch=True)
        (used * factor * frozen).sum().backward()
    assert found.result() == ({2: 4.0}, 10.0)
    assert found.place(used) == 2
    assert found.place(nn.Parameter(torch.ones(1))) is None
