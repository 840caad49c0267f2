"""Ops on gradients, in graphs that `create_graph=True` makes, are sites of their own."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip


def _orders(session: actzip.Session) -> dict[str, int]:
    return {row.name: row.site.order for row in session.stats().sites}


def _leaf() -> Tensor:
    return torch.randn(64, 64, requires_grad=True)


def test_ops_on_gradients_have_other_names_than_those_on_values() -> None:
    w = _leaf()
    with actzip.compress(method="division") as session:
        for _ in range(2):
            y = w.sin() * w
            (g,) = torch.autograd.grad(y.sum(), w, create_graph=True)
            first = _orders(session)
            (h,) = torch.autograd.grad((g * g).sum(), w, create_graph=True)
            second = _orders(session)
            (h * g + w * w).sum().backward()
            third = _orders(session)
    assert set(first.values()) == {0}
    assert set(second.values()) == {1}
    # w * w reads values, h * g gradients of gradients
    assert set(third.values()) == {0, 2}
    assert not (first.keys() & second.keys())
    assert not (second.keys() & third.keys())
    assert ":MulBackward0.self" in first
    assert ":MulBackward0.self~grad" in second


def test_products_with_a_gradient_are_of_its_order_in_every_later_pass() -> None:
    """Hessian times vector, again and again: each backward but the last keeps the graph."""
    w = _leaf()
    with actzip.compress(method="division") as session:
        (g,) = torch.autograd.grad(w.sin().sum(), w, create_graph=True)
        for _ in range(3):
            v = torch.randn(64, 64)
            torch.autograd.grad((g.tanh() * v).sum(), w, retain_graph=True)
            assert set(_orders(session).values()) == {1}
        w.sin().sum().backward()
    assert set(_orders(session).values()) == {0}


class Forces(nn.Module):
    """A gradient is computed in forward, as in models of energies."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        energy = F.silu(self.fc(x)).sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=True)
        return force * force


def test_a_graph_made_inside_forward_is_told_apart_too() -> None:
    net = Forces()
    session = actzip.compress(net, "division")
    net(_leaf()).sum().backward()
    orders = _orders(session)
    assert orders["fc:AddmmBackward0.mat1"] == 0
    assert {"MulBackward0"} <= {r.node for r in session.stats().sites if r.site.order == 1}


def test_a_backward_without_a_graph_makes_no_order() -> None:
    w = _leaf()
    with actzip.compress(method="division") as session:
        for _ in range(2):
            (w.sin() * w).sum().backward()
    assert set(_orders(session).values()) == {0}


def test_deep_graphs_of_gradients_take_no_recursion() -> None:
    w = _leaf()
    with actzip.compress(method="division") as session:
        y = w
        for _ in range(1500):
            y = y.sin()
        (g,) = torch.autograd.grad(y.sum(), w, create_graph=True)
        (g * g).sum().backward()
    assert set(_orders(session).values()) == {1}


def test_a_gradient_of_a_gradient_that_goes_through_a_sum_is_as_exact_as_was_asked() -> None:
    """The sum cancels to a thousandth of its terms, the noise in them does not: with bounds learned
    of the gradients' graph the second gradient was as far off as it is large."""

    def second(around: contextlib.AbstractContextManager[object]) -> list[Tensor]:
        torch.manual_seed(0)
        x = torch.randn(2, 8, 4, 4, requires_grad=True)
        slope = torch.linspace(-1, 1.5, x.numel()).view(x.shape)
        found = []
        with around:
            for _ in range(4):
                y = -x
                nll = F.gaussian_nll_loss(y, x, x.detach().abs() + 0.5)
                loss = nll.tanh().exp() + (y * slope).sum()
                (g,) = torch.autograd.grad(loss, x, create_graph=True)
                found += torch.autograd.grad((g * g * slope).sum(), x)
        return found

    exact = second(contextlib.nullcontext())
    method = actzip.ACGC(e2=1e-4, interval=1)
    found = second(actzip.compress(method=method, min_bytes=0))
    for mine, plain in zip(found, exact, strict=True):
        error = float((mine - plain).norm() / plain.norm())
        assert error <= 0.01, f"off by {error:.3f} of its size"
