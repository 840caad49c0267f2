"""A compiled submodule in an attached model: right gradients, and the report names it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import actzip
from training import assert_equal, gradients

pytestmark = [
    # Dynamo's own imports use names that torch has deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def _block() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.LeakyReLU())


class Mixed(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.eager, self.other = _block(), _block()
        self.how = how

    def compiled(self) -> Mixed:
        """Compiled after the copies are made: what is compiled does not deepcopy."""
        if self.how == "submodule":
            self.other = torch.compile(self.other, backend="aot_eager")  # type: ignore[assignment]
        elif self.how == "in place":
            self.other.compile(backend="aot_eager")
        return self

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.eager(self.other(x))
        return out


@pytest.mark.parametrize("how", ["submodule", "in place"])
def test_gradients_are_those_of_the_compiled_model_without_actzip(how: str) -> None:
    torch._dynamo.reset()
    x = torch.randn(64, 64)
    model = Mixed(how)
    plain = copy.deepcopy(model).compiled()
    expected = gradients(plain, lambda m: m(x).sum())
    model = model.compiled()
    with actzip.compress(model) as session:
        assert_equal(gradients(model, lambda m: m(x).sum()), expected)
        assert_equal(gradients(model, lambda m: m(x).sum()), expected)
        stats = session.stats()
        assert any(row.codec for row in stats.sites if row.module.startswith("eager"))
        if how == "submodule":
            assert "CompiledFunctionBackward" in stats.unknown
            assert "CompiledFunctionBackward" in session.report()
        assert session.live_bytes == 0
    assert not plain._forward_hooks


def test_a_compiled_model_as_a_whole_warns_that_nothing_can_be_seen() -> None:
    torch._dynamo.reset()
    model = _block()
    x = torch.randn(64, 64)
    expected = gradients(copy.deepcopy(model), lambda m: m(x).sum())
    compiled: nn.Module = torch.compile(model, backend="aot_eager")  # type: ignore[assignment]
    with (
        pytest.warns(actzip.ActzipWarning, match="CompiledFunctionBackward"),
        actzip.compress(compiled),
    ):
        ours = gradients(compiled, lambda m: m(x).sum())
    assert_equal({n.removeprefix("_orig_mod."): g for n, g in ours.items()}, expected)
