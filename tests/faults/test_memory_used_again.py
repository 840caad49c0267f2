"""Decoded tensors go into memory used before: nobody may see another tensor's values in it.

With every buffer going through the pool and every value through an exact code, whole models, two
backward passes and double backward must still be bit-equal.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from nets import batch, convnet
from torch import Tensor, nn

import actzip
from actzip.memory import buffers
from training import EXACT, assert_trains_the_same


@pytest.fixture(autouse=True)
def _everything_through_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "SMALLEST_BUFFER", 1)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for _ in range(3):  # one mask, read by every layer
            x = torch.relu(x @ self.w).masked_fill(mask, 0.1) + x
        deep = torch.sin(x @ self.w) * x  # x is read at two depths
        return deep.square().mean()


@pytest.mark.parametrize("method", EXACT.values(), ids=EXACT)
def test_a_tensor_read_by_several_layers_keeps_its_values(method: actzip.Method) -> None:
    x, mask = torch.randn(64, 64), torch.rand(64, 64) > 0.7
    assert_trains_the_same(Layers(), lambda m: m(x, mask), method=method, min_bytes=0)


@pytest.mark.parametrize("method", EXACT.values(), ids=EXACT)
def test_ids_of_two_embeddings_keep_their_values(method: actzip.Method) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Embedding(50, 8), nn.Embedding(50, 8)

        def forward(self, ids: Tensor) -> Tensor:
            h = torch.relu(self.a(ids)) * 2
            return torch.relu(h + self.b(ids)).square().mean()

    ids = torch.randint(0, 50, (40, 40))
    assert_trains_the_same(Two(), lambda m: m(ids), method=method, min_bytes=0)


@pytest.mark.parametrize("method", EXACT.values(), ids=EXACT)
def test_two_backward_passes_and_a_gradient_penalty_are_bit_equal(method: actzip.Method) -> None:
    def run(compressed: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = convnet()
        session = actzip.compress(model, method=method, min_bytes=0) if compressed else None
        x, y = batch()
        x.requires_grad_()
        loss = F.cross_entropy(model(x), y)
        parameters = list(model.parameters())
        first = torch.autograd.grad(loss, parameters, retain_graph=True)
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        second = torch.autograd.grad(loss + slope.square().sum(), parameters)
        if session is not None:
            session.remove()
        return [*first, *second]

    for ours, plain in zip(run(True), run(False), strict=True):
        assert torch.equal(ours, plain)


def test_gradients_taken_inside_the_forward_are_bit_equal() -> None:
    class Forces(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32), nn.GELU())

        def forward(self, x: Tensor) -> Tensor:
            x = x.clone().requires_grad_()
            (f,) = torch.autograd.grad(self.net(x).sum(), x, create_graph=True)
            (g,) = torch.autograd.grad(self.net(x * 2).sum(), x, create_graph=True)
            return (f * g).mean()

    x = torch.randn(32, 32)
    for method in EXACT.values():
        assert_trains_the_same(Forces(), lambda m: m(x), method=method, min_bytes=0)
