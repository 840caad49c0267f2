"""Cheap functions of packed tensors are made again in backward, for sessions that derive."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip.autograd.ledger import Fate
from compiled.nets import FINE, error, gradients, make, saved_bytes


class Cheap(nn.Module):
    """A norm, an activation, a gate and a dropout, each read by a product."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.gate = nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(64, 128)
        self.down, self.out = nn.Linear(128, 64), nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        x = self.down(F.silu(self.gate(x)) * self.up(x))
        out: Tensor = self.out(F.dropout(F.gelu(x), 0.25))
        return out


def _derived(session: actzip.Session) -> set[str]:
    return {row.name for row in session.stats().sites if row.fate is Fate.DERIVED}


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp_partition"])
def test_results_of_norms_gates_and_activations_are_not_saved(backend: str) -> None:
    model, x = Cheap(), torch.randn(64, 64)
    plain, other = copy.deepcopy(model), copy.deepcopy(model)
    exact = gradients(torch.compile(plain, backend=backend), x)  # type: ignore[arg-type]
    saved = []
    for each, derive in ((model, True), (other, None)):
        torch._dynamo.reset()
        with actzip.compress(each, FINE, min_bytes=1024, derive=derive) as session:
            compiled = torch.compile(each, backend=backend, fullgraph=True)
            ours = gradients(compiled, x)  # type: ignore[arg-type]
            assert 0 < error(ours, exact) < 3e-4
            saved.append(saved_bytes(compiled(x), each))
            found = {name.split(":")[0] for name in _derived(session)}
            assert not [row.name for row in session.stats().sites if row.role.value == "exact"]
        assert found == ({"gate", "down", "out"} if derive else set())
    assert saved[0] < 0.7 * saved[1]


def test_the_report_says_what_a_derived_tensor_is_made_from() -> None:
    model, x = Cheap(), torch.randn(64, 64)
    with actzip.compress(model, FINE, min_bytes=1024, derive=True) as session:
        gradients(torch.compile(model, backend="aot_eager"), x)  # type: ignore[arg-type]
        said = session.explain("gate")
    assert "derived" in said
    assert "norm:NativeLayerNormBackward0.input" in said


def test_a_decoder_derives_what_it_derives_in_eager() -> None:
    model, x = make("gpt")
    eager, plain = copy.deepcopy(model), copy.deepcopy(model)
    exact = gradients(torch.compile(plain, backend="aot_eager"), x)  # type: ignore[arg-type]
    torch._dynamo.reset()
    with actzip.compress(model, FINE, derive=True) as session:
        ours = gradients(torch.compile(model, backend="aot_eager"), x)  # type: ignore[arg-type]
        mine, names = session.stats(), _derived(session)
    with actzip.compress(eager, FINE, derive=True) as session:
        gradients(eager, x)
        assert names == _derived(session)
        assert mine.stored_bytes <= 1.1 * session.stats().stored_bytes
    assert 0 < error(ours, exact) < 1e-4


class Wild(nn.Module):
    """Nothing here may be made again from a code: an exponential, a sum of two codes, a ReLU's
    result with the mask that backward reads."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y, z = self.a(x).tanh(), self.b(x).tanh()
        out: Tensor = self.c(y.exp()) + self.c(y + z) + self.c(F.relu(self.a(y)))
        return out


def test_what_has_steep_slopes_or_two_errors_or_a_mask_is_saved() -> None:
    model, x = Wild(), torch.randn(64, 64)
    exact = gradients(copy.deepcopy(model), x)
    with actzip.compress(model, FINE, min_bytes=0, derive=True) as session:
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        ours = gradients(compiled, x)  # type: ignore[arg-type]
        assert not _derived(session)
        assert any(row.module == "c" for row in session.stats().sites)
    assert 0 < error(ours, exact) < 1e-3


def test_lossless_makes_nothing_again() -> None:
    """Another kernel may round another way: the compiled model's own bits are the promise."""
    model, x = Cheap(), torch.randn(64, 64)
    exact = gradients(torch.compile(copy.deepcopy(model), backend="aot_eager"), x)  # type: ignore[arg-type]
    torch._dynamo.reset()
    with actzip.compress(model, derive=True, min_bytes=0) as session:
        ours = gradients(torch.compile(model, backend="aot_eager"), x)  # type: ignore[arg-type]
        assert not _derived(session)
    assert all(torch.equal(ours[n], g) for n, g in exact.items())
