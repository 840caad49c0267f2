"""Tensors that are read in slices, and all that autograd and users may do with a graph."""

from __future__ import annotations

import copy
import gc
import itertools
from typing import Any

import pytest
import torch
from sliced import LowBit, backward, batch, blocks, both, close, count_slices, read_whole, weights
from torch import Tensor, nn

import actzip
from actzip.codecs import Group


def test_a_second_backward_has_the_very_bits_of_the_first() -> None:
    model, x = blocks(), batch()
    with actzip.compress(model, LowBit()) as session:
        loss = model(x).square().sum()
        first = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        assert session.live_bytes > 0
        second = torch.autograd.grad(loss, list(model.parameters()))
        del loss
        assert session.live_bytes == 0
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_double_backward_reads_the_tensor_whole_where_it_must() -> None:
    def penalty(whole: bool) -> list[Tensor]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Conv2d(16, 8, 3), nn.SiLU(), nn.Conv2d(8, 4, 3)).double()
        x = batch().double().requires_grad_()
        with read_whole() if whole else count_slices(), actzip.compress(model, LowBit()) as session:
            loss = model(x).square().sum()
            (slope,) = torch.autograd.grad(loss, x, create_graph=True)
            found = torch.autograd.grad(slope.square().sum(), list(model.parameters()))
            del loss, slope
            assert session.live_bytes == 0
        return list(found)

    close(list(penalty(False)), list(penalty(True)), 1e-10)


def test_batched_gradients() -> None:
    model, x = nn.Conv2d(16, 4, 3), batch()
    with actzip.compress(model, LowBit()):
        y = model(x)
    several = torch.randn(3, *y.shape)
    parameters = list(model.parameters())
    one = [torch.autograd.grad(y, parameters, g, retain_graph=True) for g in several]
    together = torch.autograd.grad(y, parameters, several, is_grads_batched=True)
    for got, each in zip(together, zip(*one, strict=True), strict=True):
        torch.testing.assert_close(got, torch.stack(each), rtol=1e-4, atol=1e-3)


def test_an_edit_after_the_convolution_does_not_reach_its_gradient() -> None:
    model, x = nn.Conv2d(16, 4, 3), batch()
    ours = backward(model, x, LowBit())
    model.zero_grad()
    with actzip.compress(model, LowBit()):
        seen = x.clone()
        y = model(seen)
        seen.zero_()
        (y * weights(y)).sum().backward()
    for before, p in zip(ours[1:], model.parameters(), strict=True):
        assert before is not None
        assert p.grad is not None
        assert torch.equal(before, p.grad)


def test_a_sample_without_a_batch_is_left_alone() -> None:
    x = torch.randn(16, 64, 64)
    with count_slices() as counts:
        backward(nn.Conv2d(16, 4, 3), x, LowBit())
    assert counts == []


def test_autocast() -> None:
    model, x = blocks(), batch()
    with torch.autocast("cpu", torch.bfloat16):
        ours, whole = both(model, x)
    assert [g.dtype for g in ours if g is not None] == [torch.float32] * 8
    close(ours, whole, 2**-7)


def test_an_error_in_the_middle_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = blocks(), batch()
    expected = backward(copy.deepcopy(model), x, LowBit())
    calls = itertools.count()
    plain = Group.decode

    def failing(self: Group, *args: Any, **kwargs: Any) -> Tensor:
        if next(calls) == 20:
            raise KeyboardInterrupt
        return plain(self, *args, **kwargs)

    gc.disable()  # nothing may depend on the cycle collector
    try:
        session = actzip.compress(model, LowBit())
        loss = model(x).sum()
        with monkeypatch.context() as patch:
            patch.setattr(Group, "decode", failing)
            with pytest.raises(KeyboardInterrupt):
                loss.backward()
        del loss
        assert session.live_bytes == 0
        session.remove()
    finally:
        gc.enable()
    for stats in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
        stats.reset_running_stats()
    for mine, theirs in zip(backward(model, x, LowBit()), expected, strict=True):
        assert mine is theirs is None or torch.equal(mine, theirs)


def test_a_hundred_steps_leave_no_tensor_behind() -> None:
    model, x = nn.Sequential(nn.Conv2d(16, 4, 1), nn.BatchNorm2d(4), nn.ReLU()), batch()

    def tensors() -> int:
        return sum(issubclass(type(o), Tensor) for o in gc.get_objects())

    with actzip.compress(model, LowBit()) as session:
        gc.collect()
        gc.disable()
        count = []
        try:
            for step in range(100):
                y = model(x)
                if step % 2:
                    y.sum().backward()
                model.zero_grad()
                del y
                assert session.live_bytes == 0
                if step in (3, 99):  # to ask for all objects takes longer than a step
                    count.append(tensors())
            assert count[-1] <= count[0]
        finally:
            gc.enable()


def test_a_backward_inside_a_session_around_any_code() -> None:
    model, x = blocks(), batch()
    expected = backward(copy.deepcopy(model), x, LowBit())
    with actzip.compress(method=LowBit()) as session, count_slices() as counts:
        y = model(x)
        y.backward(weights(y))
        del y
        assert session.live_bytes == 0
    assert max(counts) > 1
    for theirs, p in zip(expected[1:], model.parameters(), strict=True):
        assert theirs is not None
        assert p.grad is not None
        assert torch.equal(theirs, p.grad)
