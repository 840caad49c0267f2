"""Fixed: lossy codes everywhere, and what must stay exact stays exact."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import actzip
from actzip.codecs import Bounded, FixedPoint, Group
from actzip.codecs.base import Codec


def _run(model: nn.Module, x: Tensor, session: actzip.Session | None = None) -> list[Tensor]:
    x = x.clone().requires_grad_()
    model(x).square().sum().backward()
    found = [x.grad, *(p.grad for p in model.parameters())]
    model.zero_grad()
    return [g.clone() for g in found if g is not None]


@pytest.mark.parametrize(
    "codec",
    [
        Group(bits=2, zero=True),
        Group(bits=2, zero=True, rounding="nearest"),
        Group(bits=2),
        Bounded(error=0.05),
        FixedPoint(bits=6, skip_zeros=True),
    ],
    ids=repr,
)
def test_relu_masks_are_exact_whatever_the_code_of_the_next_layers_input(codec: Codec) -> None:
    """Only the weight's gradient may be off: the mask decides the gradient of the input."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    x = torch.randn(4, 3, 20, 20)
    plain = _run(model, x)
    with actzip.compress(model, method=actzip.Fixed(linear=codec)) as session:
        ours = _run(model, x)
        rows = {row.name: row for row in session.stats().sites}
    assert torch.equal(ours[0], plain[0]), "the input's gradient needs masks and weights only"
    assert not torch.equal(ours[3], plain[3]), "the weight's gradient reads the lossy code"
    relu = rows["1:ReluBackward0.result"]
    if codec.keeps_mask:
        assert (relu.stored_bytes, relu.shared_with) == (0, "2:ConvolutionBackward0.input")
    else:
        assert relu.codec.startswith("BitMask")


def test_a_tensor_with_two_needs_is_stored_once_for_the_stronger() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(64, 64)

        def forward(self, x: Tensor) -> Tensor:
            h = self.lin(x)
            return self.lin(h) + torch.nn.functional.gelu(h)

    model, x = Both(), torch.randn(64, 64)
    with actzip.compress(model, method="fixed") as session:
        _run(model, x)
        rows = {row.name: row for row in session.stats().sites}
    linear, gelu = rows["lin:AddmmBackward0.mat1#1"], rows[":GeluBackward0.self"]
    assert "bits=4" in gelu.codec
    assert (linear.stored_bytes, linear.shared_with) == (0, gelu.name)


def test_a_relu_mask_survives_when_its_tensor_is_stored_again_for_a_stronger_need() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
            self.norm = nn.LayerNorm(64)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.relu(self.first(x))
            return self.second(h) + 0 * self.norm(h)  # linear, then nonlinear: a code without zero

    model, x = Twice(), torch.randn(64, 64)
    plain = _run(model, x)
    with actzip.compress(model, method="fixed") as session:
        ours = _run(model, x)
        rows = {row.name: row for row in session.stats().sites}
    assert torch.equal(ours[0], plain[0])
    assert rows[":ReluBackward0.result"].codec == "BitMask()"
    assert rows["second:AddmmBackward0.mat1"].shared_with == "norm:NativeLayerNormBackward0.input"


def test_a_role_may_be_left_alone() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
    with actzip.compress(model, method="fixed", nonlinear=None) as session:
        model(torch.randn(64, 64))
        for row in session.stats().sites:
            assert bool(row.codec) == (row.role is actzip.methods.Role.LINEAR)


def test_every_step_draws_new_rounding_and_the_same_seed_the_same() -> None:
    model, x = nn.Linear(64, 64), torch.randn(64, 64)

    def two_steps(seed: int) -> list[Tensor]:
        with actzip.compress(model, method="fixed", seed=seed):
            return [_run(model, x)[1] for _ in range(2)]

    first, again, other = two_steps(0), two_steps(0), two_steps(1)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], other[0])


def test_gradients_of_linear_sites_are_unbiased() -> None:
    model, x = nn.Linear(64, 32, bias=False), torch.randn(64, 64)
    exact = _run(model, x)[1]
    with actzip.compress(model, method="fixed"):
        draws = torch.stack([_run(model, x)[1] for _ in range(400)])
    error = draws.mean(0) - exact
    sigma = draws.std(0) / 400**0.5
    assert (error.abs() < 5 * sigma).all()
