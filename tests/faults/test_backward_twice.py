"""retain_graph and double backward: the same tensors come back, and can be differentiated."""

import torch
import torch.nn.functional as F
from nets import batch, convnet
from torch import Tensor

import actzip


def test_a_second_backward_equals_the_first_bit_for_bit() -> None:
    model = convnet()
    x, y = batch()
    with actzip.compress(model):
        loss = F.cross_entropy(model(x), y)
    parameters = list(model.parameters())
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    second = torch.autograd.grad(loss, parameters)
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)


def test_a_gradient_penalty_equals_plain() -> None:
    def run(compressed: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = convnet()
        session = actzip.compress(model) if compressed else None
        x, y = batch()
        x.requires_grad_()
        loss = F.cross_entropy(model(x), y)
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        (loss + slope.square().sum()).backward()
        if session is not None:
            session.remove()
        return [p.grad for p in model.parameters() if p.grad is not None]

    for ours, plain in zip(run(True), run(False), strict=True):
        assert torch.equal(ours, plain)


def test_gradgradcheck_holds_under_lossless() -> None:
    weight = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)

    def f(x: Tensor, w: Tensor) -> Tensor:
        with actzip.compress(min_bytes=0):
            h = F.leaky_relu(x @ w, 0.2) * F.hardtanh(x * 3)
            h = F.max_pool1d(F.relu(h).sin() + x, 2)
            return torch.clamp(h, -1, 1).exp()

    x = (torch.randn(3, 4, dtype=torch.float64) * 2).requires_grad_()
    assert torch.autograd.gradcheck(f, (x, weight))
    assert torch.autograd.gradgradcheck(f, (x, weight))
