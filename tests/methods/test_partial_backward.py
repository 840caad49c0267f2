"""A backward pass that asks for some gradients only says nothing of the others."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import actzip

METHODS = {
    "acgc": actzip.ACGC(e2=1e-4, interval=1),
    "comet": actzip.Comet(1e-3, scope="all", interval=1),
    "actnn": actzip.ActNN(bits=8),
}


class Energy(nn.Module):
    """A force field in small: linear layers, a norm, a convolution, scales."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 3, padding=1)
        self.norm = nn.LayerNorm(16)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 16))
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(torch.relu(self.conv(x))) * self.scale
        energy: torch.Tensor = self.down(F.gelu(self.up(h)))
        return energy


@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
def test_forces_before_the_loss_leave_the_weights_gradients_as_they_were(
    method: actzip.Method,
) -> None:
    """`autograd.grad(energy, positions)` has no gradients of weights; what only they are sensitive
    to was stored with errors as large as its peak from the next step on."""
    torch.manual_seed(0)
    model = Energy()
    x = torch.randn(6, 4, 16).requires_grad_()

    def step() -> list[torch.Tensor]:
        model.zero_grad()
        energy = model(x).square().sum()
        (force,) = torch.autograd.grad(energy, x, retain_graph=True)
        assert force.norm() > 0
        energy.backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    exact = step()
    with actzip.compress(model, method, min_bytes=0):
        for _ in range(4):
            for ours, plain in zip(step(), exact, strict=True):
                assert (ours - plain).norm() < 0.03 * plain.norm()
