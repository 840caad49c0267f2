"""Looks at backward: what they cost, what they hold, and that nothing they meet ends a run."""

from __future__ import annotations

import copy
import gc
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import actzip
from actzip.autograd import observe
from actzip.codecs import Group
from actzip.codecs.base import Codec
from actzip.control.reading import Reading
from actzip.control.statistics import Statistics
from actzip.methods.base import Role, Site, Stateless


@dataclass(frozen=True)
class Looking(Stateless):
    """8-bit codes everywhere; the steps named are looked at, or all of them."""

    steps: tuple[int, ...] | None = None
    roles: tuple[Role, ...] = (Role.LINEAR, Role.NONLINEAR)
    asked: list[str] = field(default_factory=list)

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        self.asked.append(site.name)
        return Group(8) if site.role in self.roles else None

    def begin(self, step: int, statistics: Statistics) -> bool:
        statistics.by_layer = True
        return self.steps is None or step in self.steps


def convnet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 64, 10),
    )


def batch(n: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def of(session: actzip.Session, site: str) -> Reading:
    found = session._statistics.of(site)
    assert found is not None, (site, session._statistics.sites, session._statistics.missing)
    return found


@pytest.fixture
def session() -> Iterator[actzip.Session]:
    """Of the convnet, looked at in every step."""
    model = convnet()
    made = actzip.compress(model, Looking(), min_bytes=0)
    made.model = model  # type: ignore[attr-defined]  # held for the test
    yield made
    made.remove()


# -- cost -------------------------------------------------------------------------------------


def test_a_pass_that_is_not_looked_at_has_no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []
    init = observe._Look.__init__
    monkeypatch.setattr(
        observe._Look, "__init__", lambda self, *args: (looks.append(self), init(self, *args))[1]
    )
    model = convnet()
    with actzip.compress(model, Looking(steps=(1,)), min_bytes=0):
        counts = []
        for _ in range(3):
            model(batch()).sum().backward()
            counts.append(len(looks))
    assert counts[0] == 0
    assert counts[1] == counts[2] == 5  # two convolutions, batch norm, SiLU, linear


def test_looking_changes_no_gradient() -> None:
    model, x = convnet(), batch()
    found = []
    for steps in ((), None):
        twin = copy.deepcopy(model)
        with actzip.compress(twin, Looking(steps), min_bytes=0):
            twin(x).square().sum().backward()
        found.append([p.grad for p in twin.parameters()])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)  # type: ignore[arg-type]


def test_the_streams_of_random_numbers_are_untouched(session: Any) -> None:
    def streams() -> tuple[bytes, Any, list[int]]:
        numbers = np.random.get_state()[1].tolist()
        return torch.get_rng_state().numpy().tobytes(), random.getstate(), numbers

    before = streams()
    session.model(batch()).softmax(-1).sum().backward()
    assert streams() == before


# -- memory -----------------------------------------------------------------------------------


def tensors() -> int:
    return sum(issubclass(type(o), Tensor) for o in gc.get_objects())


def test_two_hundred_looks_leave_nothing_behind(session: Any) -> None:
    model, x = session.model, batch(2)
    for _ in range(2):
        model(x).sum().backward()
    gc.collect()
    gc.disable()  # nothing may depend on the cycle collector
    try:
        before = tensors()
        for step in range(200):
            loss = model(x).sum()
            if step % 2:
                loss.backward()
            del loss
            assert session.live_bytes == 0, step
        assert tensors() <= before + 8, "readings are replaced, not collected"
    finally:
        gc.enable()


def test_a_graph_that_outlives_its_backward_holds_nothing() -> None:
    """The loss is kept until the next step in most loops: the hooks live as long."""
    x = torch.randn(64, 64, requires_grad=True)
    other = torch.randn(64, 64) + 5
    gc.collect()
    with actzip.compress(method=Looking(), min_bytes=0):
        y = (x * 2) / other  # `other` stays with autograd, beside a stored tensor
        loss = (y @ (x * 3)).sum()
    loss.backward()
    x.grad = None
    del y
    gc.collect()
    # x, other, the loss, and the leaf's bookkeeping: none of the 64·64 tensors of the graph
    held = [o for o in gc.get_objects() if type(o) is Tensor and o.numel() == 64 * 64]
    assert len(held) <= 2, [tuple(t.shape) for t in held]
    assert loss.grad_fn is not None


# -- values that are no numbers -----------------------------------------------------------------


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_bad_gradient_or_activation_is_not_remembered(session: Any, bad: float) -> None:
    model = session.model
    site = "0:ConvolutionBackward0.input"
    model(batch()).sum().backward()
    good = of(session, site)
    (model(batch()).sum() * bad).backward()
    x = batch()
    x[0, 0, 0, 0] = bad
    model(x).sum().backward()
    assert torch.equal(of(session, site).parameter, good.parameter)
    model(batch(seed=1)).sum().backward()
    assert of(session, site).is_finite()
    assert not torch.equal(of(session, site).parameter, good.parameter)
    assert not session._statistics.missing


def test_a_bad_gradient_does_not_stay_in_the_table_of_samples(session: Any) -> None:
    for factor in (1.0, torch.inf, torch.nan, 1.0):
        session.samples([0, 1, 2, 3])
        (session.model(batch()).sum() * factor).backward()
    known = session._statistics.recall("0:ConvolutionBackward0.input", torch.arange(4))
    assert known is not None
    assert known.isfinite().all()
    assert torch.allclose(known, of(session, "0:ConvolutionBackward0.input").parameter, rtol=1e-2)


# -- several backwards, several forwards --------------------------------------------------------


def test_a_second_backward_of_one_graph_tells_nothing_new(session: Any) -> None:
    loss = session.model(batch()).sum()
    loss.backward(retain_graph=True)
    first = of(session, "0:ConvolutionBackward0.input")
    loss.backward()
    assert torch.equal(of(session, "0:ConvolutionBackward0.input").parameter, first.parameter)


def test_two_forwards_before_one_backward_give_the_reading_of_the_second(session: Any) -> None:
    model = session.model
    for norm in model.modules():
        norm.track_running_stats = False
    together = model(batch(4, seed=1)).sum() + model(batch(6, seed=2)).sum()
    together.backward()
    found = of(session, "3:ConvolutionBackward0.input")
    model(batch(6, seed=2)).sum().backward()
    alone = of(session, "3:ConvolutionBackward0.input")
    assert found.parameter.shape == (6,)
    assert torch.allclose(found.parameter, alone.parameter, rtol=1e-3)


def test_batches_of_any_size(session: Any) -> None:
    for n in (5, 1, 8):
        if n == 1:
            session.model[1].eval()
        session.model(batch(n)).sum().backward()
        assert of(session, "3:ConvolutionBackward0.input").parameter.shape == (n,)


def test_an_empty_batch() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8))
    with actzip.compress(model, "actnn", min_bytes=0):
        model(torch.randn(0, 64)).sum().backward()
        base = torch.randn(4096, 64)
        model(base[:0]).sum().backward()
    assert float(model[0].weight.grad.abs().sum()) == 0  # type: ignore[union-attr]


# -- shared, sliced, copied ---------------------------------------------------------------------


class Branches(nn.Module):
    """One tensor that several ops read."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(32, 24), nn.Linear(32, 40)
        self.norm = nn.LayerNorm(32)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        a: Tensor = self.a(x)
        b: Tensor = self.b(x)
        return a.square().sum() + b.square().sum()


def test_ops_that_read_one_tensor_add_up() -> None:
    model, x = Branches(), torch.randn(6, 5, 32)
    with actzip.compress(model, Looking(), min_bytes=0) as session:
        model(x).backward()
        site = "a:AddmmBackward0.mat1"
        found = of(session, site)
        assert "b:AddmmBackward0.mat1" not in session._statistics.sites
        y = model.norm(x)
        grads = [2 * model.a(y), 2 * model.b(y)]
    expected = sum(g.square().sum((1, 2)) * 32 for g in grads)
    assert torch.allclose(found.parameter, expected.double(), rtol=1e-2)  # type: ignore[union-attr]


class Chunks(nn.Module):
    """q, k and v are thirds of one stored tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, 16)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        return F.scaled_dot_product_attention(q, k, v)


def test_thirds_of_one_tensor_are_lifted_to_their_places() -> None:
    model, x = Chunks(), torch.randn(4, 9, 32)
    with actzip.compress(model, Looking(), min_bytes=0) as session:
        model(x).square().sum().backward()
        (site,) = (s for s in session._statistics.sites if "Attention" in s and "output" not in s)
        found = of(session, site)
    assert found.channel_input.shape == (96,)
    assert (found.channel_input > 0).all(), "each third has its own weights"
    assert not session._statistics.missing


def test_casts_and_channels_last_and_doubles() -> None:
    for change in (
        lambda m, x: (m, x.to(memory_format=torch.channels_last)),
        lambda m, x: (m.to(memory_format=torch.channels_last), x),
        lambda m, x: (m.double(), x.double()),
        lambda m, x: (m.bfloat16(), x.bfloat16()),
    ):
        model, x = change(convnet(), batch())
        with actzip.compress(model, Looking(), min_bytes=0) as session:
            model(x).sum().backward()
            assert not session._statistics.missing
            assert len(session._statistics.sites) == 5
            assert all(of(session, s).is_finite() for s in session._statistics.sites)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_around_forward_or_backward_too(dtype: torch.dtype, inside: bool) -> None:
    """Squares of a scaled loss's gradients are far above what 16 bits hold."""
    model, x = convnet(), batch()
    with actzip.compress(model, Looking(), min_bytes=0) as session:
        with torch.autocast("cpu", dtype=dtype):
            loss = model(x).float().square().mean() * 4096
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        assert not session._statistics.missing
        low = of(session, "3:ConvolutionBackward0.input").parameter.sum()
    twin = convnet()
    twin.load_state_dict(model.state_dict())
    with actzip.compress(twin, Looking(), min_bytes=0) as session:
        (twin(x).square().mean() * 4096).backward()
        full = of(session, "3:ConvolutionBackward0.input").parameter.sum()
    assert float(low / full) == pytest.approx(1, rel=0.2)


# -- parameters ---------------------------------------------------------------------------------


def test_frozen_parameters() -> None:
    model = convnet()
    model[0].requires_grad_(False)
    model[3].weight.requires_grad_(False)  # type: ignore[union-attr]
    with actzip.compress(model, Looking(), min_bytes=0) as session:
        model(batch()).square().sum().backward()
        norm = of(session, "1:NativeBatchNormBackward0.input")
    assert float(norm.parameter.sum()) > 0
    assert float(norm.input.sum()) == 0, "below it nothing is trained: no gradient is given"
    assert not session._statistics.missing


@pytest.mark.parametrize("make", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_weights_that_are_made_from_parameters_end_the_gradient(make: Any) -> None:
    model = nn.Sequential(
        make(nn.Conv2d(3, 8, 3)), nn.SiLU(), nn.Flatten(), make(nn.Linear(8 * 36, 8))
    )
    with actzip.compress(model, Looking(), min_bytes=0) as session:
        model(batch()).square().sum().backward()
        ops = ("ConvolutionBackward0.input", "AddmmBackward0.mat1")
        sites = [s for s in session._statistics.sites if s.endswith(ops)]
        readings = [of(session, s) for s in sites]
    assert len(sites) == 2
    assert all(float(r.parameter.sum()) > 0 == float(r.input.sum()) for r in readings)


def test_low_rank_weights_and_activations_are_told_apart() -> None:
    class LowRank(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(32, 4)), nn.Parameter(torch.randn(4, 32))
            self.first = nn.Linear(32, 32)

        def forward(self, x: Tensor) -> Tensor:
            y = F.gelu(self.first(x))
            z: Tensor = y @ (self.a @ self.b)
            return z @ y.t()

    model = LowRank()
    with actzip.compress(model, Looking(), min_bytes=2048) as session:
        model(torch.randn(48, 32)).square().sum().backward()
        made = of(session, ":MmBackward0.self")
        both = of(session, ":MmBackward0.self#1")
    assert float(made.parameter.sum()) > 0, "the product of two parameters is a weight"
    assert float(both.parameter.sum()) == 0 < float(both.input.sum())


def test_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(50, 32)
            self.hidden = nn.Linear(32, 32)

        def forward(self, ids: Tensor) -> Tensor:
            return F.linear(F.silu(self.hidden(self.embedding(ids))), self.embedding.weight)

    model = Tied()
    with actzip.compress(model, Looking(), min_bytes=0) as session:
        model(torch.randint(0, 50, (4, 9))).square().mean().backward()
        last = of(session, ":MmBackward0.self")
        first = of(session, "hidden:AddmmBackward0.mat1")
    assert float(last.parameter.sum()) > 0 == float(last.input.sum())
    assert float(first.parameter.sum()) > 0 == float(first.input.sum())


def test_what_autograd_keeps_after_all_is_not_read() -> None:
    """A second op needs the tensor exactly: it has no error, and takes no part in a budget."""
    model = nn.Linear(32, 32)
    x = torch.randn(16, 32)
    with actzip.compress(method=Looking(), min_bytes=0) as session:
        y = model(x).exp() + 1
        loss = (y @ torch.randn(32, 8)).sum() + y.log().sum()  # log keeps y as it is
    loss.backward()
    assert not any("MmBackward0.self" in s for s, r in _read(session) if r is not None)


def _read(session: actzip.Session) -> list[tuple[str, Reading | None]]:
    return [(s, session._statistics.of(s)) for s in session._statistics.sites]


# -- exceptions, other machinery ----------------------------------------------------------------


def test_no_exception_of_a_look_ends_a_run(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(observe, "weights", broken)
    session.model(batch()).sum().backward()
    assert all(p.grad is not None for p in session.model.parameters())
    assert "ZeroDivisionError: on purpose" in next(iter(session._statistics.missing.values()))


def test_an_op_without_a_formula_says_so() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.PReLU(64), nn.Linear(64, 8))
    with actzip.compress(model, Looking(), min_bytes=0) as session:
        model(torch.randn(32, 64)).sum().backward()
    assert [why for why in session._statistics.missing.values() if "no error formula" in why]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_inside(reentrant: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = convnet()

        def forward(self, x: Tensor) -> Tensor:
            x = self.parts[:2](x)
            x = checkpoint(self.parts[2:5], x, use_reentrant=reentrant)
            out: Tensor = self.parts[5:](x)
            return out

    model = Model()
    with actzip.compress(model, Looking(), min_bytes=0) as session:
        for _ in range(2):
            model(batch()).sum().backward()
        sites = session._statistics.sites
    assert not any("Silu" in s for s in sites)
    assert all(of(session, s).is_finite() for s in sites)
    assert not session._statistics.missing


def test_two_models_in_one_block_with_the_same_names() -> None:
    """Nothing can tell their sites apart; nothing may break either."""
    small, large = nn.Linear(16, 16), nn.Sequential(nn.Linear(32, 64), nn.GELU())
    with actzip.compress(method="actnn", min_bytes=0) as session:
        for step in range(12):
            small(torch.randn(64 + step, 16)).square().sum().backward()
            large(torch.randn(8, 40, 32)).square().sum().backward()
    assert session.step >= 24
    assert session.live_bytes == 0


def test_a_model_called_inside_another_of_its_calls() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(32, 32)

        def forward(self, x: Tensor, again: bool = True) -> Tensor:
            y: Tensor = F.silu(self.layer(x))
            return self(y, False) if again else y

    model = Twice()
    with actzip.compress(model, Looking(), min_bytes=0) as session:
        model(torch.randn(64, 32)).sum().backward()
        sites = session._statistics.sites
    assert sum("AddmmBackward0" in s for s in sites) == 2
    assert not session._statistics.missing


def test_threads_with_sessions_of_their_own() -> None:
    found: dict[int, Tensor] = {}

    def train(seed: int) -> None:
        torch.manual_seed(seed)
        model = convnet()
        with actzip.compress(model, Looking(), min_bytes=0) as session:
            for _ in range(5):
                model(batch(seed=seed)).sum().backward()
            found[seed] = of(session, "0:ConvolutionBackward0.input").parameter

    def models() -> list[nn.Module]:
        made = []
        for seed in (0, 1):
            torch.manual_seed(seed)
            made.append(convnet())
        return made

    for seed, model in enumerate(models()):
        with actzip.compress(model, Looking(), min_bytes=0) as session:
            for _ in range(5):
                model(batch(seed=seed)).sum().backward()
            found[10 + seed] = of(session, "0:ConvolutionBackward0.input").parameter
    threads = [threading.Thread(target=train, args=(seed,)) for seed in (0, 1)]
    for thread in threads:
        torch.manual_seed(0)
        thread.start()
        thread.join()
    for seed in (0, 1):
        assert torch.allclose(found[seed], found[10 + seed])


def test_gradients_of_gradients() -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    x = torch.randn(16, 32, requires_grad=True)
    with actzip.compress(model, Looking(), min_bytes=0) as session:
        (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        g.square().sum().backward()
    assert model[0].weight.grad is not None
    assert not session._statistics.missing
