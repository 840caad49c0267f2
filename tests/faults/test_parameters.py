"""Parameters and buffers are never encoded: tied, transposed, frozen, cast by autocast."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip.codecs.base import Codec
from actzip.methods.base import Site, Stateless
from training import gradients


@dataclass(frozen=True)
class Spy(Stateless):
    """Encodes all it is asked to and remembers what that was."""

    seen: list[Tensor] = field(default_factory=list)

    def codec(self, site: Site, tensor: Tensor) -> Codec:
        self.seen.append(tensor.detach().clone())
        return actzip.codecs.Keep()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(96, 48)
        self.lin = nn.Linear(48, 48)
        self.square = nn.Parameter(torch.randn(48, 48))
        self.conv = nn.Conv1d(48, 48, 3, padding=1)
        self.register_buffer("table", torch.randn(48, 48))

    def forward(self, ids: Tensor) -> Tensor:
        h = self.lin(self.embed(ids)) @ self.square.t() @ self.square
        h = self.conv(h.transpose(1, 2)).transpose(1, 2) * self.table[0] + h @ self.table
        return F.linear(h, self.embed.weight)


def _is_weight(t: Tensor, model: nn.Module) -> bool:
    held = [*model.parameters(), *model.buffers()]
    forms = [f for p in held for f in (p, p.t() if p.dim() == 2 else p)]
    return any(
        t.shape == f.shape and torch.equal(t, f.detach().to(t.dtype)) for f in forms if f.dim()
    )


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_no_weight_is_ever_encoded(autocast: bool, frozen: bool) -> None:
    model, spy = Tied(), Spy()
    if frozen:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith("embed"))
    ids = torch.randint(0, 96, (4, 24))

    def loss(m: nn.Module) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            y: Tensor = m(ids)
            return y.float().square().mean()

    plain = gradients(model, loss)
    with actzip.compress(model, method=spy) as session:
        ours = gradients(model, loss)
        assert all(torch.equal(ours[n], plain[n]) for n in plain)
        assert session.stats().compressed > 1
    assert spy.seen, "activations are encoded"
    weights = [t for t in spy.seen if _is_weight(t, model)]
    assert not weights, [tuple(t.shape) for t in weights]


def test_around_code_weights_are_known_without_a_model() -> None:
    model, spy = Tied(), Spy()
    ids = torch.randint(0, 96, (4, 24))
    with actzip.compress(method=spy):
        model(ids).square().mean().backward()
    assert not any(_is_weight(t, model) for t in spy.seen if t.shape != model.table.shape)


def test_raw_bytes_leave_parameters_and_buffers_out() -> None:
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Sigmoid())
    x = torch.randn(32, 64)
    with actzip.compress(model, method=actzip.Lossless()) as session:
        model(x)
        # the input, for the weight's gradient, and the sigmoid's result; not the weight
        assert session.stats().raw_bytes == 2 * 32 * 64 * 4
