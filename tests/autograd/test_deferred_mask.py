"""The bits of a ReLU are written only when nobody stores its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip.codecs import BitMask, Group


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of all tensors that were packed as bits."""
    shapes: list[tuple[int, ...]] = []
    encode = BitMask.encode

    def spy(self: BitMask, x: Tensor, **options: Any) -> Any:
        shapes.append(tuple(x.shape))
        return encode(self, x, **options)

    monkeypatch.setattr(BitMask, "encode", spy)
    return shapes


def gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    model(x).square().mean().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_no_bits_when_the_next_layer_stores_the_values(written: list[tuple[int, ...]]) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(inplace=True))
    x = torch.randn(32, 64)
    exact = gradients(model, x)
    code = Group(8, zero=True)
    session = actzip.compress(model, method=actzip.Fixed(linear=code), min_bytes=0)
    found = gradients(model, x)
    assert written == [(32, 64)], "the last ReLU's alone: the square outside stores nothing for it"
    for a, b in zip(found, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=0.05, atol=0.05 * float(b.abs().max()))
    rows = {row.name: row for row in session.stats().sites}
    assert rows["1:ReluBackward0.result"].stored_bytes == 0
    assert rows["1:ReluBackward0.result"].shared_with.startswith("2:")
    assert rows["3:ReluBackward0.result"].codec == "BitMask()"


def test_bits_when_another_tensor_is_stored_first(written: list[tuple[int, ...]]) -> None:
    w, other = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)

    def run() -> list[Tensor]:
        y = (w * 1).relu()
        z = (other * 1).sigmoid()
        out = y.sum() + z.sum()
        return list(torch.autograd.grad(out, [w, other]))

    exact = run()
    with actzip.compress(method="lossless", min_bytes=0):
        found = run()
    assert written == [(64, 64)]
    for a, b in zip(found, exact, strict=True):
        assert torch.equal(a, b)


def test_backward_before_anything_else_is_stored_reads_the_result_itself() -> None:
    w = torch.randn(64, 64, requires_grad=True)
    with actzip.compress(method="fixed", min_bytes=0) as session:
        y = (w * 1).relu()
        (g,) = torch.autograd.grad(y.sum(), [w])
    assert torch.equal(g, (w > 0).float())
    assert session.live_bytes == 0


@pytest.mark.parametrize(
    "edit",
    [
        lambda y: y.add_(1),
        lambda y: y.__setitem__(0, 7.0),
        lambda y: F.relu(y, inplace=True),
        lambda y: F.dropout(y, 0.5, inplace=True),
        lambda y: torch.mul(y.detach(), 3, out=y.detach()),
    ],
)
def test_an_edit_of_the_result_finds_the_bits_written(edit: Callable[[Tensor], object]) -> None:
    w = torch.randn(64, 64, requires_grad=True)
    with actzip.compress(method="fixed", min_bytes=0):
        y = (w * 1).relu()
        out = y + 0
        edit(y)
    (g,) = torch.autograd.grad(out.sum(), [w])
    assert torch.equal(g, (w > 0).float())


def test_nothing_is_held_once_the_pass_is_over() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    session = actzip.compress(model, method="fixed", min_bytes=0)
    y = model(torch.randn(32, 64))
    assert session.live_bytes >= 32 * 64 // 8
    F.mse_loss(y, torch.zeros_like(y)).backward()
    del y
    assert session.live_bytes == 0
