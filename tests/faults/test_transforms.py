"""Inside torch.func, and where its functions read what autograd keeps of ordinary tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import actzip
from actzip.codecs import Group, Keep
from actzip.methods import ACGC, ActNN, Auto, Comet, Division, Fixed, Lossless

METHODS: dict[str, Any] = {
    "lossless": Lossless(),
    "keep": Fixed(Keep(), Keep()),
    "group": Fixed(Group(8), Group(8)),
    "actnn": ActNN(bits=8, level="L3.1"),
    "acgc": ACGC(e2=1e-4, interval=1),
    "comet": Comet(sigma=1e-3, scope="all", interval=1),
    "division": Division(bits=8, dense=8, norm=8, rows=8, activation=8, nonlinear=8),
    "auto": Auto(),
}

Step = Callable[[Tensor, Tensor, Tensor], Tensor]


def _relu_read_inside(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Its mask waits for the next op, which is inside."""
    h = torch.relu(y * 1.5)
    return torch.func.grad(lambda t: (t * t * h).sum())(x) @ w + h @ w


def _outer_backward_inside(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    h = torch.tanh(y) @ w
    loss = (h * h).sum()

    def inside(t: Tensor) -> Tensor:
        (g,) = torch.autograd.grad(loss, y, retain_graph=True)
        return (t * t * g).sum()

    return torch.func.grad(inside)(x) + h


def _batched(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    h = torch.tanh(y @ w)
    weights = torch.linspace(-1, 1, 3 * h.numel()).view(3, *h.shape)
    (g,) = torch.autograd.grad(h, y, weights, is_grads_batched=True, retain_graph=True)
    return g.sum() * h


def _vjp(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    out, back = torch.func.vjp(lambda t: torch.tanh(t @ w), x)
    return back(out)[0] * y


STEPS: dict[str, Step] = {
    "grad": lambda x, y, w: torch.func.grad(lambda t: torch.acosh(t.abs() + 1.5).sum())(x) * y,
    "vjp": _vjp,
    "jacrev": lambda x, y, w: torch.func.jacrev(lambda t: torch.tanh(t) @ w)(x[0]).sum(0) * y,
    "jacfwd": lambda x, y, w: torch.func.jacfwd(lambda t: torch.tanh(t) @ w)(x[0]).sum(1) * y,
    "hessian": lambda x, y, w: torch.func.hessian(lambda t: (t * t @ w).tanh().sum())(x[0]) @ y.mT,
    "vmap": lambda x, y, w: torch.func.vmap(lambda t: torch.tanh(t @ w))(x) * y,
    "linearize": lambda x, y, w: torch.func.linearize(lambda t: (t @ w).tanh(), x)[0] * y,
    "functionalize": lambda x, y, w: torch.func.functionalize(lambda t: (t @ w).tanh())(x) * y,
    "a ReLU's result is read inside": _relu_read_inside,
    "a backward pass of what is outside": _outer_backward_inside,
    "is_grads_batched": _batched,
}


def _gradients(step: Step, method: Any, steps: int = 3) -> list[Tensor]:
    torch.manual_seed(1)
    leaves = [torch.randn(6, 8), torch.randn(6, 8), torch.randn(8, 8) / 3]
    leaves = [t.requires_grad_() for t in leaves]
    session: Any = contextlib.nullcontext()
    if method is not None:
        session = actzip.compress(method=method, min_bytes=0)
    found = []
    with session:
        for _ in range(steps):  # what is learned in one is used in the next
            loss = step(*leaves).square().sum()
            found += torch.autograd.grad(loss, leaves, allow_unused=True)
    return [t for t in found if t is not None]


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning", "ignore::UserWarning")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("step", STEPS)
def test_gradients_are_right_under_every_method(step: str, method: str) -> None:
    plain = _gradients(STEPS[step], None)
    ours = _gradients(STEPS[step], METHODS[method])
    exact = method in ("lossless", "keep")
    for a, b in zip(ours, plain, strict=True):
        assert torch.equal(a, b) if exact else bool(a.isfinite().all())
        if method != "auto":  # allows noise by the spread of SGD's gradients: here there is none
            assert (a - b).norm() <= 0.2 * b.norm()


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_a_model_called_inside_a_transform_learns_outside_of_it() -> None:
    """A pass begins, and a method looks at what the last one said, inside the transform."""
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    x = torch.randn(32, 8)
    weights = {n: p.detach() for n, p in model.named_parameters()}

    def loss(p: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(model, p, (x,)).square().sum()

    plain = torch.func.grad(loss)(weights)
    with actzip.compress(model, ACGC(e2=1e-4, interval=1), min_bytes=0) as session:
        for _ in range(3):
            model(x).square().sum().backward()
            ours = torch.func.grad(loss)(weights)
        assert session.stats().unseen
    assert all(torch.equal(ours[name], plain[name]) for name in plain)


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_an_error_of_ours_inside_a_transform_is_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bool:
        raise RuntimeError("a defect")

    plain = _gradients(STEPS["grad"], None)
    monkeypatch.delenv("ACTZIP_DEBUG")
    monkeypatch.setattr("actzip.methods.acgc._Policy.begin", fail)
    ours = _gradients(STEPS["grad"], METHODS["acgc"])
    assert all((a - b).norm() <= 0.01 * b.norm() for a, b in zip(ours, plain, strict=True))


@pytest.mark.parametrize("method", [ACGC(e2=1e-4, interval=1), Comet(1e-2, scope="all")])
@pytest.mark.parametrize("wrapped", [nn.Parameter, Tensor.requires_grad_])
def test_leaves_whose_op_stores_nothing_get_no_more_noise_than_others(
    method: Any, wrapped: Callable[[Tensor], Tensor]
) -> None:
    """An embedding before a GELU, weights that are mere tensors: nothing limited the GELU's input,
    and their gradients were eleven times as large as they should be."""
    table, w = wrapped(torch.randn(16, 32)), wrapped(torch.randn(32, 32) / 6)
    ids = torch.arange(64) % 16

    def loss() -> Tensor:
        h = nn.functional.gelu(nn.functional.embedding(ids, table))
        return (h @ w).square().sum()

    plain = torch.autograd.grad(loss(), (table, w))
    with actzip.compress(method=method, min_bytes=0):
        for _ in range(4):
            ours = torch.autograd.grad(loss(), (table, w))
    for a, b in zip(ours, plain, strict=True):
        assert (a - b).norm() <= 0.02 * b.norm()
