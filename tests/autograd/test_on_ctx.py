"""What a custom function keeps on its ctx is named with its bytes, and trains as it did."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import actzip

ROWS, WIDTH = 64, 128
ACTIVATION, WEIGHT = 4 * ROWS * WIDTH, 4 * WIDTH * WIDTH


class MatMul4Bit(torch.autograd.Function):
    """As bitsandbytes has it: its operands are in a tuple of ctx."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.tensors = (None, x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad @ ctx.tensors[2].t(), None


class Quantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return (MatMul4Bit.apply(x, self.weight) + MatMul4Bit.apply(x, self.weight)).relu().sum()


def test_an_activation_on_ctx_is_counted_once_and_named() -> None:
    model = Quantized()
    session = actzip.compress(model, "actnn", min_bytes=1024)
    model(torch.randn(ROWS, WIDTH)).backward()
    rows = [row for row in session.stats().sites if row.node == "MatMul4BitBackward"]
    assert [row.slot for row in rows] == ["ctx.tensors[1]"] * 2
    assert [row.raw_bytes for row in rows] == [ACTIVATION, 0]
    assert [row.stored_bytes for row in rows] == [ACTIVATION, 0]
    assert "MatMul4BitBackward.ctx.tensors[1]: exact, left alone" in session.report()
    assert "where no hook reaches it" in session.explain("MatMul4Bit")


def test_a_weight_on_ctx_is_named_and_is_no_activation() -> None:
    model = Quantized()
    session = actzip.compress(model, "lossless", min_bytes=1024)
    for _ in range(2):
        model(torch.randn(ROWS, WIDTH))
    stats = session.stats()
    assert stats.weights_on_ctx == {"MatMul4BitBackward": WEIGHT}
    assert stats.raw_bytes < WEIGHT + 3 * ACTIVATION
    assert "MatMul4BitBackward, 64.00 KiB" in session.report()


def test_what_is_stored_and_on_ctx_too_costs_both() -> None:
    x = torch.randn(ROWS, WIDTH, requires_grad=True)
    with actzip.compress(method="actnn", min_bytes=1024) as session:
        h = x * 1
        loss = MatMul4Bit.apply(h, torch.eye(WIDTH)).sum() + h.sin().sum()
    on_ctx = [row for row in session.stats().sites if row.slot.startswith("ctx.")]
    coded = [row for row in session.stats().sites if row.codec]
    assert sum(row.stored_bytes for row in on_ctx) == ACTIVATION + WEIGHT
    assert sum(row.raw_bytes for row in coded) + on_ctx[0].raw_bytes == ACTIVATION
    assert 0 < sum(row.stored_bytes for row in coded) < ACTIVATION / 8
    loss.backward()
    assert x.grad is not None


def test_qlora_of_bitsandbytes_is_named() -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    model = nn.Sequential(
        nn.Linear(WIDTH, WIDTH), bitsandbytes.nn.Linear4bit(WIDTH, WIDTH, compute_dtype=torch.float)
    ).to("cpu")
    session = actzip.compress(model, "lossless", min_bytes=1024)
    model(torch.randn(ROWS, WIDTH)).sum().backward()
    # the packed weight: half a byte each
    assert session.stats().weights_on_ctx == {"MatMul4BitBackward": WIDTH * WIDTH // 2}
