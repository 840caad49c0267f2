"""Looks at backward: tensors, parameters and machinery of many kinds give right readings."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from looking import Looking, batch, convnet, of
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import actzip
from actzip.control.reading import Reading

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
    assert torch.allclose(found.parameter, expected.double(), rtol=1e-2)


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
    changes: tuple[Any, ...] = (
        lambda m, x: (m, x.to(memory_format=torch.channels_last)),
        lambda m, x: (m.to(memory_format=torch.channels_last), x),
        lambda m, x: (m.double(), x.double()),
        lambda m, x: (m.bfloat16(), x.bfloat16()),
    )
    for change in changes:
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
    model[3].get_parameter("weight").requires_grad_(False)
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
    told = {s for s, r in _read(session) if r is not None}
    assert ":AddmmBackward0.mat1" in told
    assert not any("MmBackward0.self" in s for s in told)


def _read(session: actzip.Session) -> list[tuple[str, Reading | None]]:
    return [(s, session._statistics.of(s)) for s in session._statistics.sites]


# -- other machinery ----------------------------------------------------------------


def test_an_op_without_a_formula_says_so() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.PReLU(64), nn.Linear(64, 8))
    with actzip.compress(model, Looking(), min_bytes=0) as session:
        model(torch.randn(32, 64)).sum().backward()
    assert session._statistics.missing == {
        "1:PreluKernelBackward0.self": "PreluKernelBackward0.self: no error formula"
    }


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
    assert len(sites) == 3
    assert all(of(session, s).is_finite() for s in sites)
    assert not session._statistics.missing


def test_two_models_in_one_block_with_the_same_names() -> None:
    """Nothing can tell their sites apart; nothing may break either."""
    small, large = nn.Linear(16, 16), nn.Sequential(nn.Linear(32, 64), nn.GELU())
    with actzip.compress(method="actnn", min_bytes=0) as session:
        for step in range(12):
            small(torch.randn(64 + step, 16)).square().sum().backward()
            large(torch.randn(8, 40, 32)).square().sum().backward()
    assert session.step == 25, "one a backward, and what comes after the last"
    assert len(session._statistics.sites) == 4
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
    """Both at the same time find what each finds alone."""

    def train(seed: int, model: nn.Module, found: dict[int, Tensor]) -> None:
        with actzip.compress(model, Looking(), min_bytes=0) as session:
            for _ in range(5):
                model(batch(seed=seed)).sum().backward()
            found[seed] = of(session, "0:ConvolutionBackward0.input").parameter

    models = [convnet(), convnet()]
    alone: dict[int, Tensor] = {}
    for seed, model in enumerate(models):
        train(seed, copy.deepcopy(model), alone)
    together: dict[int, Tensor] = {}
    threads = [
        threading.Thread(target=train, args=(seed, model, together))
        for seed, model in enumerate(models)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert alone.keys() == together.keys() == {0, 1}
    for seed in (0, 1):
        assert torch.allclose(together[seed], alone[seed])
    assert not torch.allclose(alone[0], alone[1])


def test_gradients_of_gradients() -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    x = torch.randn(16, 32, requires_grad=True)
    with actzip.compress(model, Looking(), min_bytes=0) as session:
        (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        g.square().sum().backward()
    assert not session._statistics.missing
    found = [p.grad for p in (model[0].weight, model[2].weight)]
    (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    exact = torch.autograd.grad(g.square().sum(), (model[0].weight, model[2].weight))
    for ours, theirs in zip(found, exact, strict=True):
        assert ours is not None
        assert 0 < float((ours - theirs).norm() / theirs.norm()) < 0.05
