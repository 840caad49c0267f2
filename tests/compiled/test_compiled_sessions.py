"""Sessions come and go, in any order with torch.compile."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import actzip
from actzip.compiled import installation, ops
from compiled.nets import FINE, error, gradients, make, saved_bytes


class Block(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
        return out


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Block(), Block()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.b(self.a(x)).tanh()
        return out


@pytest.mark.parametrize("what", ["own", "sequential"])
@pytest.mark.parametrize("how", ["wrapped", "in place"])
def test_what_was_compiled_and_run_before_is_compiled_again(how: str, what: str) -> None:
    model = Net() if what == "own" else nn.Sequential(Block(), Block())
    x = torch.randn(32, 64)
    compiled = model
    if how == "wrapped":
        compiled = torch.compile(model, backend="aot_eager")  # type: ignore[assignment]
    else:
        model.compile(backend="aot_eager")
    plain = gradients(compiled, x)
    for method in (FINE, "fixed"):
        with actzip.compress(model, method) as session:
            ours = gradients(compiled, x)
            assert 0 < error(ours, plain) < (3e-4 if method is FINE else 1)
            assert session.stats().ratio > (2.5 if method is FINE else 4)
        again = gradients(compiled, x)
        assert all(torch.equal(again[n], g) for n, g in plain.items())


def test_a_function_that_was_compiled_around_the_model_is_compiled_again() -> None:
    model, x = Net(), torch.randn(32, 64)
    step = torch.compile(lambda x: model(x).sum(), backend="aot_eager", fullgraph=True)
    step(x)
    with actzip.compress(model, FINE) as session:
        step(x)
        assert session.stats().ratio > 2.5
        assert {row.module for row in session.stats().sites} >= {"a.up", "a.down", "b.up"}


def test_what_forward_returns_for_backward_is_what_the_report_says() -> None:
    model, x = Net(), torch.randn(64, 64)
    y = torch.compile(model, backend="aot_eager")(x)
    plain = saved_bytes(y, model)
    with actzip.compress(model, "fixed", min_bytes=0) as session:
        y = torch.compile(model, backend="aot_eager")(x)
        packed, stats = saved_bytes(y, model), session.stats()
    assert stats.raw_bytes == pytest.approx(plain, rel=0.02)
    assert stats.stored_bytes == pytest.approx(packed, rel=0.15)
    assert packed < plain / 4


def test_the_report_names_modules_and_ops() -> None:
    model, x = Net(), torch.randn(64, 64)
    with actzip.compress(model, "fixed") as session:
        torch.compile(model, backend="aot_eager")(x).sum().backward()
        names = {row.name: row.role.value for row in session.stats().sites}
        assert names["a:GeluBackward0.self"] == "nonlinear"
        assert names["b.norm:NativeLayerNormBackward0.input"] == "nonlinear"
        assert "a.up" in session.report()
        assert "Gelu" in session.report()
        assert "linear" in session.explain("a.down")


def test_two_models_of_one_class_have_their_own_methods() -> None:
    x = torch.randn(32, 64)
    ratios = []
    models = [Net(), Net(), Net()]
    sessions = [actzip.compress(models[0], FINE), actzip.compress(models[1], "fixed")]
    for model in models:
        torch.compile(model, backend="aot_eager")(x).sum().backward()
    ratios = [session.stats().ratio for session in sessions]
    assert 2.5 < ratios[0] < 4 < ratios[1]
    for session in sessions:
        session.remove()


def test_compiled_blocks_of_an_eager_model_share_a_graph_and_have_their_own_names() -> None:
    model = nn.Sequential(*(Block() for _ in range(3)), nn.Tanh())
    x = torch.randn(32, 64)
    exact = gradients(copy.deepcopy(model), x)
    for block in list(model)[:3]:
        block.compile(backend="aot_eager")
    with actzip.compress(model, FINE) as session:
        ours = gradients(model, x)
        stats = session.stats()
    assert error(ours, exact) < 3e-4
    assert {"0.up", "1.up", "2.up", "3"} <= {row.module for row in stats.sites}
    assert not stats.unknown
    assert stats.ratio > 2
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_a_part_with_a_session_of_its_own_inside_one_graph_leaves_the_graph_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(installation, "_said", set())
    model, x = Net(), torch.randn(32, 64)
    plain = gradients(torch.compile(copy.deepcopy(model), backend="aot_eager"), x)  # type: ignore[arg-type]
    with actzip.compress(model, "fixed"), actzip.compress(model.b):
        compiled = torch.compile(model, backend="aot_eager")
        with pytest.warns(actzip.ActzipWarning, match="several actzip sessions"):
            ours = gradients(compiled, x)  # type: ignore[arg-type]
    assert all(torch.equal(ours[n], g) for n, g in plain.items())


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_an_error_of_ours_leaves_the_graph_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTZIP_DEBUG", "0")
    monkeypatch.setattr(installation, "_said", set())
    model, x = Net(), torch.randn(32, 64)
    plain = gradients(torch.compile(copy.deepcopy(model), backend="aot_eager"), x)  # type: ignore[arg-type]

    def fail(*_: object) -> None:
        raise RuntimeError("on purpose")

    monkeypatch.setattr("actzip.compiled.rewrite._Plan._unpack", fail)
    with actzip.compress(model, "fixed"):
        compiled = torch.compile(model, backend="aot_eager")
        with pytest.warns(actzip.ActzipWarning, match="on purpose"):
            ours = gradients(compiled, x)  # type: ignore[arg-type]
    assert all(torch.equal(ours[n], g) for n, g in plain.items())


def test_a_partitioner_that_says_less_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_said", set())
    monkeypatch.setattr(installation, "_current", lambda: [object()])
    graphs = object(), object()  # they are not so much as looked at
    with pytest.warns(actzip.ActzipWarning, match="does not know"):
        installation._apply(*graphs, {"num_fwd_outputs": 1})


def test_an_input_is_packed_and_a_weight_that_is_an_input_is_not() -> None:
    weight = nn.Parameter(torch.randn(64, 64))

    class Given(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: Tensor, w: Tensor) -> Tensor:
            return (x @ w).tanh() @ self.weight

    model, x = Given(), torch.randn(128, 64, requires_grad=True)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    compiled(x, weight.data).sum().backward()
    exact = x.grad.clone()  # type: ignore[union-attr]
    x.grad = None
    with actzip.compress(model, actzip.Fixed(actzip.codecs.Group(2)), min_bytes=0) as session:
        compiled(x, weight).sum().backward()
        rows = {row.name: row for row in session.stats().sites}
    assert rows[":MmBackward0.self"].stored_bytes < x.numel()  # of 4 bytes each
    assert not any(row.codec for name, row in rows.items() if "mat2" in name)
    assert error({"x": x.grad}, {"x": exact}) < 0.2  # type: ignore[dict-item]


def test_graphs_are_compiled_again_twice_at_most_for_other_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(installation, "_said", set())
    model, x = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8)), torch.randn(64, 64)
    with actzip.compress(model, "fixed") as session, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call = torch.compile(model, backend="aot_eager")
        gradients(call, x)  # type: ignore[arg-type]
        for _ in range(5):
            actzip.compress(nn.Linear(64, 64), "fixed").remove()
            gradients(call, x)  # type: ignore[arg-type]
            assert session.stats().ratio > 4
        numbers = session.metrics()
    assert (numbers["compiled_graphs"], numbers["recompiled_graphs"]) == (3, 2)
    assert sum("left as they are" in str(each.message) for each in told) == 1


def test_nothing_stays_installed_after_the_last_session() -> None:
    import torch._dynamo.backends.common as common
    import torch._inductor.config as config

    before = common.aot_module_simplified
    model, x = Net(), torch.randn(32, 64)
    with actzip.compress(model, "fixed"):
        torch.compile(model, backend="aot_eager")(x)
        assert common.aot_module_simplified is not before
        assert config.custom_partitioner_fn is not None
    assert common.aot_module_simplified is before
    assert config.custom_partitioner_fn is None


def test_the_key_of_the_caches_has_the_method_in_it() -> None:
    import torch._inductor.config as config

    keys = []
    for method in ("lossless", "fixed", actzip.Fixed(None)):
        model = Net()
        with actzip.compress(model, method) as session:

            def backend(gm: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
                keys.append(config.custom_partitioner_fn.uuid())
                return gm

            torch.compile(model, backend=backend)(torch.randn(32, 64))
            assert repr(session.method) in keys[-1]
    assert len(set(keys)) == 3


def test_dynamic_shapes() -> None:
    model = Net()
    batches = [torch.randn(shape) for shape in ((4, 16, 64), (8, 20, 64), (3, 33, 64))]
    plain = torch.compile(copy.deepcopy(model), backend="aot_eager", dynamic=True)
    expected = [gradients(plain, x) for x in batches]  # type: ignore[arg-type]
    with actzip.compress(model, FINE) as session:
        compiled = torch.compile(model, backend="aot_eager", dynamic=True, fullgraph=True)
        for x, exact in zip(batches, expected, strict=True):
            assert 0 < error(gradients(compiled, x), exact) < 3e-4  # type: ignore[arg-type]
            assert session.stats().ratio > 2.5
            assert any(row.raw_bytes == 4 * 2 * x.numel() for row in session.stats().sites)


def test_autocast_and_accumulated_gradients() -> None:
    class Cast(Net):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return self.b(self.a(x)).float()

    def accumulated(m: nn.Module) -> dict[str, Tensor]:
        compiled = torch.compile(m, backend="aot_eager")
        for part in torch.linspace(-2, 2, 4096).view(64, 64).chunk(2):
            compiled(part).square().mean().backward()
        return {n: p.grad for n, p in m.named_parameters() if p.grad is not None}

    model = Cast()
    exact = accumulated(copy.deepcopy(model))
    with actzip.compress(model, FINE) as session:
        ours = accumulated(model)
        assert not any(row.role.value == "weight" for row in session.stats().sites)
    assert 0 < error(ours, exact) < 1e-3


@pytest.mark.parametrize("method", ["lossless", FINE])
def test_checkpoint_inside_the_compiled_region(method: str | actzip.Method) -> None:
    class Recomputed(Net):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = checkpoint(self.b, self.a(x), use_reentrant=False)
            return out

    model, x = Recomputed(), torch.randn(64, 64)
    plain = gradients(torch.compile(copy.deepcopy(model), backend="aot_eager"), x)  # type: ignore[arg-type]
    with actzip.compress(model, method):
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        ours = gradients(compiled, x)  # type: ignore[arg-type]
    if method == "lossless":
        assert all(torch.equal(ours[n], g) for n, g in plain.items())
    else:
        assert 0 < error(ours, plain) < 3e-4


def test_a_memory_budget_goes_together_with_packing() -> None:
    import torch._functorch.config as config

    model, x = Net(), torch.randn(64, 64)
    plain = gradients(torch.compile(copy.deepcopy(model), backend="aot_eager"), x)  # type: ignore[arg-type]
    with config.patch(activation_memory_budget=0.5), actzip.compress(model, FINE) as session:
        ours = gradients(torch.compile(model, backend="aot_eager"), x)  # type: ignore[arg-type]
        assert session.stats().ratio > 1.5
    assert 0 < error(ours, plain) < 1e-3


def test_a_backend_of_ones_own() -> None:
    from functorch.compile import nop
    from torch._dynamo.backends.common import aot_autograd

    from actzip.compiled import partition

    backend = aot_autograd(fw_compiler=nop, partition_fn=partition())
    model, x = Net(), torch.randn(64, 64)
    plain = gradients(torch.compile(copy.deepcopy(model), backend=backend), x)  # type: ignore[arg-type]
    with actzip.compress(model, FINE) as session:
        ours = gradients(torch.compile(model, backend=backend), x)  # type: ignore[arg-type]
        assert session.stats().ratio > 2.5
    assert 0 < error(ours, plain) < 3e-4


def test_evaluation_is_left_alone() -> None:
    model, x = make("mlp")
    model.eval()
    with actzip.compress(model, "fixed") as session:
        compiled = torch.compile(model, backend="aot_eager")
        with torch.no_grad():
            compiled(x)
        assert session.step == 0


def _on_cpu(model: nn.Module, x: Tensor) -> list[Tensor]:
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda copy: copy):
        loss = model(x).square().sum()
    loss.backward()
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return found


def test_a_graph_compiled_within_hooks_for_saved_tensors_is_left_as_it_is() -> None:
    model, x = Net(), torch.randn(32, 64)
    plain = _on_cpu(model, x)
    compiled = torch.compile(model, backend="aot_eager")
    actzip.compress(model, method="actnn", min_bytes=0)
    with pytest.warns(actzip.ActzipWarning, match="hooks"):
        ours = _on_cpu(compiled, x)  # type: ignore[arg-type]
    for one, other in zip(plain, ours, strict=True):
        torch.testing.assert_close(one, other)


def test_hooks_that_come_later_and_copy_get_the_same_gradients() -> None:
    model, x = Net(), torch.randn(32, 64)
    plain = _on_cpu(copy.deepcopy(model), x)
    compiled = torch.compile(model, backend="aot_eager")
    method = actzip.ActNN(bits=8, per_layer=False)  # no look: all passes run compiled
    actzip.compress(model, method=method, min_bytes=0)
    gradients(compiled, x)
    ops._HELD.clear()
    with pytest.warns(actzip.ActzipWarning, match="can then not be freed"):
        ours = _on_cpu(compiled, x)  # type: ignore[arg-type]
    assert ops._HELD
    ops._HELD.clear()
    for one, other in zip(plain, ours, strict=True):
        assert (one - other).norm() < 0.1 * one.norm()
