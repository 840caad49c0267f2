"""The module that is called is not the one that was given to compress, or is in eval mode."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import actzip
from training import assert_equal, gradients

X = torch.randn(64, 32)

# what a head of one linear layer saves, lossless keeps as it is
pytestmark = pytest.mark.filterwarnings("ignore:actzip compressed nothing")


def _net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32), nn.GELU())


class Task(nn.Module):
    """As a Lightning module: the loop calls `training_step`, nobody calls the module itself."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _net()
        self.heads = nn.ModuleList([nn.Linear(32, 8), nn.Linear(32, 8)])

    def training_step(self, x: Tensor) -> Tensor:
        h = self.net(x)
        return torch.stack([head(h) for head in self.heads]).square().sum()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return out


def _step(model: nn.Module) -> Tensor:
    assert isinstance(model, Task)
    return model.training_step(X)


def _forward(model: nn.Module) -> Tensor:
    return model.forward(X).square().sum()  # type: ignore[operator, no-any-return]


def _child(model: nn.Module) -> Tensor:
    assert isinstance(model, Task)
    return model.net(X).square().sum()  # type: ignore[no-any-return]


@pytest.mark.parametrize("loss", [_step, _forward, _child])
def test_children_called_outside_their_root_are_compressed(loss) -> None:  # type: ignore[no-untyped-def]
    model = Task()
    expected = gradients(copy.deepcopy(model), loss)
    with actzip.compress(model, min_bytes=0) as session:
        for step in range(3):
            assert_equal(gradients(model, loss), expected)
            assert session.step == step + 1, "parts that run in turn make one step"
            if loss is not _step:  # the last of its parts, a Linear, has nothing to compress
                assert session.stats().compressed > 0
            assert session.live_bytes == 0
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_their_sites_are_named_from_the_root_and_learned_apart() -> None:
    model = Task()
    names: set[str] = set()
    with actzip.compress(model, "actnn", bits=4, min_bytes=0) as session:
        for _ in range(3):
            loss = model.net(X).square().sum()
            names |= {row.name for row in session.stats().sites}
            loss.backward()
    assert names
    assert all(name.startswith("net.") for name in names)


def test_the_whole_model_is_one_pass() -> None:
    model = Task()
    with actzip.compress(model, min_bytes=0) as session:
        model(X).sum().backward()
        model(X).sum().backward()
    assert session.step == 2


def test_an_error_in_a_child_leaves_nothing_behind() -> None:
    model = Task()
    expected = gradients(copy.deepcopy(model), _step)
    with actzip.compress(model, min_bytes=0) as session:
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            model.net(torch.randn(3, 5))
        assert_equal(gradients(model, _step), expected)
        assert not model.net._forward_hooks
        assert session.live_bytes == 0


class Fragile(nn.Linear):
    armed = False

    def forward(self, x: Tensor) -> Tensor:
        if self.armed:
            raise KeyboardInterrupt
        return super().forward(x)


def test_after_an_interrupt_in_a_child_the_next_step_is_a_fresh_one() -> None:
    model = Task()
    model.net[2] = Fragile(64, 32)
    expected = gradients(copy.deepcopy(model), _step)
    with actzip.compress(model, min_bytes=0) as session:
        model.net[2].armed = True
        with pytest.raises(KeyboardInterrupt):
            model.net(X)
        model.net[2].armed = False
        assert_equal(gradients(model, _step), expected)
        assert session.step == 2
        model.net(X)
        assert session.stats().compressed > 0
        assert not model.net._forward_hooks


def test_a_model_that_trains_in_eval_mode_is_told_how() -> None:
    model = _net().eval()
    with actzip.compress(model, min_bytes=0) as session:
        with pytest.warns(actzip.ActzipWarning, match="eval_mode=True"):
            model(X).sum().backward()
        model(X).sum().backward()  # a second warning would fail the test
        assert session.step == 0


@pytest.mark.filterwarnings("error")
def test_an_evaluation_without_gradients_says_nothing() -> None:
    model = _net().eval()
    with actzip.compress(model, min_bytes=0), torch.no_grad():
        model(X)


def test_with_the_option_eval_mode_is_compressed_bit_for_bit() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 8))
    model.eval()
    expected = gradients(copy.deepcopy(model), lambda m: m(X).square().sum())
    with actzip.compress(model, eval_mode=True, min_bytes=0) as session:
        assert_equal(gradients(model, lambda m: m(X).square().sum()), expected)
        assert session.stats().compressed > 0
