"""fp32 tensors of bfloat16 numbers: half the bytes, every bit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import actzip
from training import assert_trains_the_same

ROWS, WIDTH = 64, 48
WHOLE, HALF = 4 * ROWS * WIDTH, 2 * ROWS * WIDTH


def short(*shape: int) -> Tensor:
    """Random bfloat16 numbers in fp32."""
    return torch.randn(*shape or (ROWS, WIDTH)).bfloat16().float()


def bits(t: Tensor) -> Tensor:
    return t.detach().contiguous().view(torch.int32)


def stored(x: Tensor) -> tuple[Tensor, actzip.Stats]:
    """What a product that saves x gives back to backward, and what was kept of it."""
    w = torch.ones_like(x, requires_grad=True)
    with actzip.compress(method="lossless", min_bytes=0) as session:
        y = x * w
    return y.grad_fn._saved_self, session.stats()  # type: ignore[union-attr]


def of_pattern(pattern: int) -> Tensor:
    return torch.tensor([pattern], dtype=torch.int64).to(torch.int32).view(torch.float32)


@pytest.mark.parametrize(
    "value",
    [-0.0, float("inf"), -float("inf"), 1e-40, -3.3895314e38],
    ids=str,
)
def test_every_bfloat16_number_comes_back_bit_for_bit_from_half_the_bytes(value: float) -> None:
    x = short()
    x[3, 5] = torch.tensor(value).bfloat16().float()
    found, stats = stored(x)
    assert torch.equal(bits(found), bits(x))
    assert stats.stored_bytes <= HALF + 64


@pytest.mark.parametrize("pattern", [0x7FC00000, 0x7FA50000, 0xFFC00000, 0x7FC00001, 0x7F800001])
def test_the_bits_of_any_nan_come_back(pattern: int) -> None:
    x = short()
    x[3, 5] = of_pattern(pattern)
    found, _ = stored(x)
    assert torch.equal(bits(found), bits(x))


def test_one_number_that_is_none_keeps_the_tensor_as_it_is() -> None:
    x = short()
    x[3, 5] = of_pattern(0x3F800001)
    found, stats = stored(x)
    assert torch.equal(bits(found), bits(x))
    assert stats.stored_bytes == WHOLE


@pytest.mark.parametrize(
    "view",
    [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[5:20, 3:], lambda x: x[:, None].mT],
    ids=["transposed", "strided", "cut", "unsqueezed"],
)
@pytest.mark.parametrize("made", [False, True], ids=["constant", "result"])
def test_any_strides_come_back(view: Callable[[Tensor], Tensor], made: bool) -> None:
    x = short()
    if made:
        x = x.requires_grad_() * 1
    x = view(x)
    found, stats = stored(x)
    assert found.stride() == x.stride()
    assert torch.equal(found, x)
    assert any("Cast" in row.codec for row in stats.sites)


class Upcast(nn.Module):
    """bfloat16 products whose results are used in fp32, and are gone by then."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Linear(WIDTH, WIDTH, dtype=torch.bfloat16)
        self.high = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.high(self.low(x).float())
        return out


def test_a_cast_whose_source_is_gone_takes_half_the_bytes() -> None:
    x = torch.randn(ROWS, WIDTH).bfloat16().requires_grad_()
    stats = assert_trains_the_same(Upcast(), lambda m: m(x).square().mean(), min_bytes=0)
    (row,) = [row for row in stats.sites if row.module == "high"]
    assert row.raw_bytes == WHOLE
    assert row.stored_bytes <= HALF + 64
    off = assert_trains_the_same(
        Upcast(), lambda m: m(x).square().mean(), min_bytes=0, compresses=None, derive=False
    )
    assert {row.stored_bytes for row in off.sites if row.module == "high"} == {WHOLE}


class Twice(Upcast):
    """The same cast made twice, as each adapter makes its own."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        low = self.low(x)
        one, two = low.to(torch.float32), low.to(torch.float32)
        del low
        out: Tensor = self.high(one) + self.other(two)
        return out


def test_the_same_cast_made_twice_is_one_tensor() -> None:
    x = torch.randn(ROWS, WIDTH).bfloat16().requires_grad_()
    stats = assert_trains_the_same(Twice(), lambda m: m(x).square().mean(), min_bytes=0)
    rows = [row for row in stats.sites if row.module in ("high", "other")]
    assert sum(row.raw_bytes for row in rows) == 2 * WHOLE
    assert sum(row.stored_bytes for row in rows) <= HALF + 64


def test_second_order_and_repeated_backward_are_bit_equal() -> None:
    start = short()

    def run(forward: AbstractContextManager[Any]) -> list[Tensor]:
        x = start.clone().requires_grad_()
        with forward:
            y = (x * x * x.roll(1)).sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        (again,) = torch.autograd.grad(y, x, retain_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        return [first.detach(), again, second]

    plain = run(nullcontext())
    session = actzip.compress(method="lossless", min_bytes=0)
    ours = run(session)
    assert any("Cast" in row.codec for row in session.stats().sites)
    for mine, theirs in zip(ours, plain, strict=True):
        assert torch.equal(mine, theirs)


def test_an_edit_through_data_between_two_uses_is_seen() -> None:
    x = short()
    w = torch.ones_like(x, requires_grad=True)
    with actzip.compress(method="lossless", min_bytes=0):
        one = (x * w).sum()
        x.data.add_(1 / 3)  # no bfloat16 any more
        two = (x * w).sum()
    (found,) = torch.autograd.grad(two, w)
    assert torch.equal(found, x)
    del one
