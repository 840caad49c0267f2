"""What is compiled in an attached model runs as it would without actzip; see tests/compiled."""

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
            assert not stats.unknown
            assert any(row.module.startswith("other") for row in stats.sites)
            assert "other" in session.report()
        assert session.live_bytes == 0
    assert not plain._forward_hooks


class Own(nn.Module):
    """With code of its own: of PyTorch's modules alone Dynamo compiles nothing in place."""

    def __init__(self) -> None:
        super().__init__()
        self.body = _block()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.tanh(self.body(x)) * x
        return out


def _whole(model: nn.Module, how: str, fullgraph: bool, compress: bool = True) -> nn.Module:
    """A model that is compressed and compiled, in either order."""
    options = {"backend": "aot_eager", "fullgraph": fullgraph}
    for act in how.split(", "):
        if act == "compress" and compress:
            actzip.compress(getattr(model, "_orig_mod", model), min_bytes=0)
        elif act == "compile":
            model = torch.compile(model, **options)  # type: ignore[assignment, call-overload]
        elif act == "compile in place":
            model.compile(**options)
    return model


def _gradients_and_graphs(model: nn.Module, x: Tensor) -> tuple[dict[str, Tensor], int]:
    """Of the third step, and how many graphs were compiled in all."""
    counters = torch._dynamo.utils.counters
    torch._dynamo.reset()
    counters.clear()
    for _ in range(3):
        found = gradients(model, lambda m: m(x).sum())
    assert not counters["graph_break"]
    names = {n.removeprefix("_orig_mod."): g for n, g in found.items()}
    return names, int(counters["stats"]["unique_graphs"])


ORDERS = (
    "compress, compile",
    "compile, compress",
    "compress, compile in place",
    "compile in place, compress",
)


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("how", ORDERS)
def test_compress_and_compile_in_either_order_run_as_one_graph(how: str, fullgraph: bool) -> None:
    model, x = Own(), torch.randn(64, 64)
    plain = _whole(copy.deepcopy(model), how, fullgraph, compress=False)
    expected, graphs = _gradients_and_graphs(plain, x)
    ours, with_actzip = _gradients_and_graphs(_whole(model, how, fullgraph), x)
    assert_equal(ours, expected)
    assert with_actzip == graphs == 1


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_a_compiled_function_inside_a_block_is_one_graph_and_what_is_around_it_is_seen() -> None:
    counters = torch._dynamo.utils.counters
    torch._dynamo.reset()
    counters.clear()
    block = torch.compile(lambda t: (t * 2).sin().exp(), backend="aot_eager", fullgraph=True)
    w = torch.randn(64, 64, requires_grad=True)
    (expected,) = torch.autograd.grad(torch.relu((w * 2).sin().exp()).sum(), w)
    for _ in range(3):
        with actzip.compress(min_bytes=0) as session:
            y = torch.relu(block(w))
        assert torch.equal(torch.autograd.grad(y.sum(), w)[0], expected)
        assert "ReluBackward0" in [r.node for r in session.stats().sites if r.codec]
    assert counters["stats"]["unique_graphs"] == 1


def test_a_model_that_is_scripted_is_let_go() -> None:
    model, x = _block(), torch.randn(64, 64)
    outer = nn.Sequential(model)
    session = actzip.compress(outer, min_bytes=0)
    plain = torch.jit.script(copy.deepcopy(outer))
    for part in (outer, model):
        with pytest.warns(actzip.ActzipWarning, match="let go"):
            scripted = torch.jit.script(part)
        assert torch.equal(scripted(x), plain(x))
        assert not any(m._forward_pre_hooks or m._forward_hooks for m in outer.modules())
        session.remove()
        session = actzip.compress(outer, min_bytes=0)
    session.remove()
    torch.jit.script(outer)  # no warning: nothing is attached


@pytest.mark.parametrize("strict", [False, True])
def test_a_model_is_exported_as_if_nothing_were_attached(strict: bool) -> None:
    model, x = _block(), torch.randn(64, 64)
    with actzip.compress(model) as session:
        program = torch.export.export(model, (x,), strict=strict)
        assert session.step == 0
    assert torch.equal(program.module()(x), model(x))
