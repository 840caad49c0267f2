"""Methods that learn do so from passes that run uncompiled; nothing is compiled anew for it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip.autograd.uncompiled import is_uncompiled
from actzip.tasks.models.resnet import resnet8
from compiled.nets import error, gradients


class Small(nn.Module):
    """A convolution, norms, an activation and a product, in few ops."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.up, self.head = nn.Linear(16, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x))).mean((2, 3))
        out: Tensor = self.head(F.gelu(self.up(x)))
        return out


X = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
#: Looks at its first passes only, so that passes without a look come soon.
METHODS: dict[str, Any] = {
    "actnn": actzip.ActNN(),
    "acgc": actzip.ACGC(interval=3, entropy=False),
    "comet": actzip.Comet(interval=4, scope="all", entropy=False, predict=None),
    "auto": "auto",
}


def _compiled(model: nn.Module, how: str) -> nn.Module:
    if how == "in place":
        model.compile(backend="aot_eager", fullgraph=True)
        return model
    if how == "part":
        model.up.compile(backend="aot_eager")
        return model
    return torch.compile(model, backend="aot_eager", fullgraph=True)  # type: ignore[return-value]


def _trained(model: nn.Module, call: nn.Module, method: Any, steps: int) -> tuple[Any, Any, Any]:
    """The last pass that nobody looked at: its numbers, its error, and what the looks told."""
    exact = gradients(copy.deepcopy(model), X)
    with actzip.compress(model, method, min_bytes=0) as session:
        for _ in range(steps):
            ours = gradients(call, X)
            assert not is_uncompiled()
            if not session._looked:
                stats, off = session.stats(), error(ours, exact)
        return stats, off, set(session._statistics.sites)


@pytest.mark.parametrize("method", METHODS)
def test_a_compiled_model_is_stored_as_an_eager_one_is(method: str) -> None:
    model = Small()
    plain = copy.deepcopy(model)
    expected, noise, _ = _trained(plain, plain, METHODS[method], 10)
    stats, off, told = _trained(model, _compiled(model, "wrapped"), METHODS[method], 10)
    coded = [row for row in stats.sites if row.role.value in ("linear", "nonlinear")]
    assert {row.name for row in coded if not row.derived_from} <= told
    assert stats.stored_bytes == pytest.approx(expected.stored_bytes, rel=0.1)
    assert 0 < off < 3 * noise + 1e-3
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp_partition"])
def test_auto_derives_what_it_derives_in_eager(backend: str) -> None:
    """A ResNet-8, whose ReLUs behind BatchNorms cost nothing but the codes of their inputs."""
    model, found = resnet8(), {}
    for name in ("eager", "compiled"):
        mine = copy.deepcopy(model)
        call = mine if name == "eager" else torch.compile(mine, backend=backend)
        with actzip.compress(mine, "auto") as session:
            for step in range(6):
                torch.manual_seed(step)
                x = torch.randn(32, 3, 32, 32)
                exact, ours = gradients(copy.deepcopy(model), x), gradients(call, x)
            assert not session._looked
            found[name] = session.stats(), error(ours, exact)
    (expected, noise), (stats, off) = found["eager"], found["compiled"]
    assert stats.stored_bytes == pytest.approx(expected.stored_bytes, rel=0.1)
    assert noise / 3 < off < 3 * noise
    derived = {row.derived_from for row in stats.sites if row.recipe == "relu"}
    assert len(derived) == 4
    assert derived <= {row.derived_from for row in expected.sites if row.recipe == "relu"}
    codes = [row.codec for row in stats.sites if row.name in derived]
    assert all("origin=(" in code for code in codes)


def test_auto_of_hardly_any_noise_is_close_to_exact() -> None:
    model = resnet8()
    call = torch.compile(model, backend="aot_eager")
    x = torch.randn(16, 3, 32, 32)
    exact = gradients(copy.deepcopy(model), x)
    with actzip.compress(model, actzip.Auto(noise=1e-6)) as session:
        for _ in range(6):
            ours = gradients(call, x)  # type: ignore[arg-type]
        assert not session._looked
    assert 0 < error(ours, exact) < 1e-6


def test_graphs_and_those_that_are_compiled_anew_are_counted() -> None:
    model = Small()
    call = torch.compile(model, backend="aot_eager", dynamic=False)
    with actzip.compress(model, actzip.ActNN(), min_bytes=0) as session:
        for _ in range(5):
            gradients(call, X)  # type: ignore[arg-type]
        numbers = session.metrics()
        assert (numbers["compiled_graphs"], numbers["recompiled_graphs"]) == (1, 0)
        for _ in range(4):
            gradients(call, X[:5])  # type: ignore[arg-type]
        numbers = session.metrics()
        assert (numbers["compiled_graphs"], numbers["recompiled_graphs"]) == (2, 1)
        assert "torch.compile made 2 graphs, 1 of code that had one" in session.report()
    plain = actzip.compress(Small(), "fixed", min_bytes=0)
    assert "compiled_graphs" not in plain.metrics()
    plain.remove()


@pytest.mark.parametrize("how", ["wrapped", "in place", "part"])
def test_bits_are_spread_over_the_layers_of_what_is_compiled(how: str) -> None:
    model = Small()
    call = _compiled(model, how)
    stats, _, told = _trained(model, call, actzip.ActNN(per_sample=False), 5)
    assert [row for row in stats.sites if row.module == "up" and row.name in told]
    bits = {row.precision for row in stats.sites if row.precision and row.role.value != "mask"}
    assert len(bits) > 1
    gradients(call, X)  # without the session: as it was


def test_a_method_that_learns_nothing_runs_no_pass_uncompiled() -> None:
    model = Small()
    call = _compiled(model, "wrapped")
    with actzip.compress(model, "fixed", min_bytes=0) as session:
        for _ in range(3):
            gradients(call, X)
            assert not session._looked
    assert not call._forward_pre_hooks


def test_what_was_learned_goes_on_after_a_resume() -> None:
    model = Small()
    call = _compiled(model, "wrapped")
    with actzip.compress(model, actzip.ActNN(), min_bytes=0) as session:
        for _ in range(6):  # the next one is none that is looked at
            gradients(call, X)
        state, expected = session.state_dict(), gradients(call, X)
        steps, precise = session.step, {row.precision for row in session.stats().sites}
        assert len(precise) > 1
    with actzip.compress(model, actzip.ActNN(), min_bytes=0) as session:
        session.load_state_dict(state)
        call = torch.compile(model, backend="aot_eager", fullgraph=True)
        ours = gradients(call, X)
        assert session.step == steps
        assert not session._looked
    assert all(torch.equal(ours[n], g) for n, g in expected.items())


@pytest.mark.parametrize("how", ["wrapped", "in place"])
def test_a_resumed_run_looks_when_the_one_that_was_not_interrupted_does(how: str) -> None:
    """After any number of passes, also where the next one is looked at, or the last one was."""
    as_begun = Small()
    for passes in range(1, 10):
        model = copy.deepcopy(as_begun)
        call = _compiled(model, how)
        with actzip.compress(model, actzip.ActNN(), min_bytes=0) as session:
            for _ in range(passes):
                gradients(call, X)
            state, expected, looked = session.state_dict(), gradients(call, X), session._looked
        torch._dynamo.reset()
        model = copy.deepcopy(as_begun)
        call = _compiled(model, how)
        with actzip.compress(model, actzip.ActNN(), min_bytes=0) as session:
            session.load_state_dict(state)
            ours = gradients(call, X)
            assert session._looked == looked, passes
        assert all(torch.equal(ours[n], g) for n, g in expected.items()), passes
