"""Compiled functions that run a whole step: forward, loss and backward."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip.autograd.observe import _Look
from actzip.autograd.recipe import Reader
from actzip.control.gradient_variance import GradientVariance
from compiled.nets import FINE, error


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(64, 256), nn.Linear(256, 64), nn.LayerNorm(64)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.down(F.relu(self.up(x)))).tanh()


X = torch.randn(32, 16, 64, generator=torch.Generator().manual_seed(0))


def _trained(model: nn.Module, step: Any, steps: int) -> dict[str, Tensor]:
    for _ in range(steps):
        model.zero_grad()
        step(X)
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def _step(model: nn.Module, call: Any) -> Any:
    def step(x: Tensor) -> Tensor:
        loss: Tensor = call(x).square().mean()
        loss.backward()
        return loss * 2

    return torch.compile(step, backend="aot_eager")


@pytest.mark.parametrize("method", ["lossless", FINE, "acgc", "auto", actzip.ActNN(bits=8)])
def test_hooks_that_backward_calls_under_a_compiled_function_are_not_compiled(method: Any) -> None:
    """The model runs as it is written, and `backward` in a resumed frame, where Dynamo compiles
    every Python function that runs: `unpack` gave tensors of other shapes then."""
    from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list as entries

    model = Net()
    plain = copy.deepcopy(model)
    exact = _trained(plain, _step(plain, torch.compiler.disable(plain)), 1)
    with actzip.compress(model, method, min_bytes=0) as session:
        ours = _trained(model, _step(model, torch.compiler.disable(model)), 4)
        assert session.stats().sites
    off = error(ours, exact)
    assert off < 1e-12 if method == "lossless" else 0 < off < 0.1
    for function in (Reader.unpack, _Look.__call__, GradientVariance._keep):
        assert not entries(function.__code__), function


def test_a_square_in_the_loss_is_understood() -> None:
    """Its backward is a power of 1.0, a float."""
    model = Net()
    plain = copy.deepcopy(model)
    exact = _trained(plain, _step(plain, plain), 1)
    with actzip.compress(model, FINE, min_bytes=1024) as session:
        ours = _trained(model, _step(model, model), 2)
        assert not [row.name for row in session.stats().sites if row.role.value == "exact"]
        assert session.stats().ratio > 3
    assert 0 < error(ours, exact) < 3e-4
