"""LSTMs: the predicted error of the gradients is the one that repeated draws show."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip.codecs import Bounded
from actzip.codecs.base import Codec
from actzip.control.statistics import Statistics
from actzip.methods.base import Site, Stateless
from actzip.tasks import digits

EB = 0.1


@dataclass(frozen=True)
class _One(Stateless):
    """A bound for one slot of the LSTM, everything else exact; a look at the first pass."""

    slot: str

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        return Bounded(EB) if (site.node, site.slot) == (NODE, self.slot) else None

    def begin(self, step: int, statistics: Statistics) -> bool:
        return step == 0


NODE = "MkldnnRnnLayerBackward0"


@pytest.mark.parametrize("both", [False, True], ids=["one way", "both ways"])
@pytest.mark.parametrize("last", [False, True], ids=["outputs", "outputs and last state"])
@pytest.mark.parametrize("slot", ["input", "result0"])
def test_the_predicted_error_is_the_measured_one(slot: str, last: bool, both: bool) -> None:
    lstm = nn.LSTM(12, 16, batch_first=True, bidirectional=both)
    parameters = list(lstm.parameters())
    x = torch.randn(8, 10, 12)
    weight = torch.randn(8, 10, 16 * (1 + both))

    def loss() -> Tensor:
        y, (h, c) = lstm(x)
        return (y * weight).sum() + (3 * h.sum() + c.square().sum() if last else 0.0)

    exact = torch.autograd.grad(loss(), parameters)
    session = actzip.compress(method=_One(slot), min_bytes=0)
    measured, draws = 0.0, 60
    for _ in range(draws):
        with session:
            value = loss()
        found = torch.autograd.grad(value, parameters)
        measured += (
            sum(float((a - b).square().sum()) for a, b in zip(found, exact, strict=True)) / draws
        )
    told = session._statistics
    readings = [told.of(site) for site in told.sites if site.partition("#")[0].endswith(slot)]
    predicted = sum(EB**2 / 3 * float(r.parameter.sum()) for r in readings if r is not None)
    if slot == "input" and both:  # oneDNN reads the reversed input from a copy that is exact
        assert 0.9 * measured <= predicted <= 2.5 * measured
    else:
        assert predicted == pytest.approx(measured, rel=0.1)


def test_the_mean_of_some_sequences_stands_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from actzip.control import recurrent

    def total(sample: int) -> float:
        monkeypatch.setattr(recurrent, "_SAMPLE", sample)
        session = actzip.compress(method=_One("input"), min_bytes=0)
        with session:
            y, _ = lstm(x)
        (y * weight).sum().backward()
        told = session._statistics
        reading = told.of(next(site for site in told.sites if site.endswith(".input")))
        assert reading is not None
        return float(reading.parameter.sum())

    lstm = nn.LSTM(12, 16, batch_first=True)
    x, weight = torch.randn(64, 10, 12), torch.randn(64, 10, 16)
    assert total(32 * 4 * 16 * 10) == pytest.approx(total(1 << 30), rel=0.1)


class _Rows(nn.Module):
    """Reads a picture row by row."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]):
        super().__init__()
        self.rnn = kind(16, 32, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(x.squeeze(1))
        logits: Tensor = self.head(states.mean(1))
        return logits


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_acgc_keeps_its_promise_for_recurrent_layers(kind: type[nn.LSTM] | type[nn.GRU]) -> None:
    split = digits.load(16)
    torch.manual_seed(0)
    model, twin = _Rows(kind), _Rows(kind)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    session = actzip.compress(model, method="acgc", optimizer=optimizer, min_bytes=1024)
    worst = 0.0
    for n in range(24):
        at = torch.arange(n * 32, n * 32 + 32)
        x, y = split.train_x[at], split.train_y[at]
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if n % 3 == 2:
            twin.load_state_dict(model.state_dict())
            twin.zero_grad()
            F.cross_entropy(twin(x), y).backward()
            for ours, theirs in ((model.rnn, twin.rnn), (model.head, twin.head)):
                pairs = list(zip(ours.parameters(), theirs.parameters(), strict=True))
                off = sum(float((p.grad - q.grad).square().sum()) for p, q in pairs)  # type: ignore[operator]
                size = sum(float(q.grad.square().sum()) for _, q in pairs)  # type: ignore[union-attr]
                worst = max(worst, off / size)
        optimizer.step()
    assert 0 < worst <= 0.5
    coded = [row.codec for row in session.stats().sites if row.codec.startswith("Bounded")]
    assert len(coded) >= 2
