"""Modules are told apart by identity, whatever they say of equality."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import actzip
from actzip.autograd.by_identity import ByIdentity
from training import assert_equal, gradients


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(torch.sigmoid(x))
        return out


class Raises(_Net):
    __hash__ = nn.Module.__hash__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("modules of this kind are not compared")


class Elementwise(_Net):
    __hash__ = nn.Module.__hash__

    def __eq__(self, other: object) -> Any:
        return torch.ones(2) == 1  # its truth raises


class AllAlike(_Net):
    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AllAlike)


def loss(model: nn.Module) -> Tensor:
    x = torch.linspace(-2, 2, 16 * 32).reshape(16, 32).requires_grad_()
    out: Tensor = model(x).square().sum()
    return out


@pytest.mark.parametrize("kind", [Raises, Elementwise, AllAlike])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_module_with_equality_of_its_own_trains_the_same(
    kind: type[nn.Module], compiled: bool
) -> None:
    model = kind()
    plain = gradients(copy.deepcopy(model), loss)
    called = torch.compile(model, backend="aot_eager") if compiled else model
    with actzip.compress(model, "lossless", min_bytes=0) as session:
        assert actzip.session_of(model) is session
        for _ in range(2):
            found = gradients(model, lambda _: loss(called))  # type: ignore[arg-type]
            assert_equal(found, plain)
        assert session.step == 2
        assert session.stats().sites
    assert actzip.session_of(model) is None


def test_equal_modules_have_a_session_each() -> None:
    first, second = AllAlike(), AllAlike()
    assert first == second
    with actzip.compress(first, "lossless", min_bytes=0) as one:
        assert actzip.session_of(second) is None
        with actzip.compress(second, "lossless", min_bytes=0) as two:
            assert actzip.session_of(first) is one
            assert actzip.session_of(second) is two
            loss(first).backward()
            names = {row.name for row in one.stats().sites}
            assert "layers.0:AddmmBackward0.mat1" in names


def test_a_child_with_equality_of_its_own_has_a_path() -> None:
    model = nn.Sequential(nn.Linear(32, 32), Raises(), Elementwise())
    plain = gradients(copy.deepcopy(model), loss)
    with actzip.compress(model, "lossless", min_bytes=0) as session:
        assert_equal(gradients(model, loss), plain)
        names = {row.name for row in session.stats().sites}
    assert {"1.layers.0:AddmmBackward0.mat1", "2.layers.2:AddmmBackward0.mat1"} <= names


def test_entries_go_with_their_objects() -> None:
    held: ByIdentity[nn.Module, int] = ByIdentity()
    a, b = Raises(), Raises()
    held[a], held[b] = 1, 2
    held[a] = 3
    assert (held.get(a), held.get(b)) == (3, 2)
    del a
    gc.collect()
    assert len(held) == 1
    assert b in held
    del held[b]
    assert b not in held
    assert held.get(b) is None
    with pytest.raises(KeyError):
        del held[b]
