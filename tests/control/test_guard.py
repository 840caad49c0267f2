"""The guard: it sees what leaves its band, says why, and training goes on with finer codes."""

from __future__ import annotations

import copy
import itertools
import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip.codecs import Bounded, Dual, FixedPoint, Group, Keep
from actzip.control.guard import Guard
from actzip.tasks import digits


def test_steady_and_falling_losses_raise_no_alarm() -> None:
    guard = Guard()
    noise = torch.Generator().manual_seed(0)
    for n in range(400):
        value = 2.3 * math.exp(-n / 100) + 0.1 * float(torch.randn(1, generator=noise).abs())
        assert guard.loss(value) is None
    assert guard.level == 0


def test_a_rising_loss_raises_precision_again_and_again_until_it_falls() -> None:
    guard = Guard()
    for _ in range(30):
        guard.loss(1.0)
    said = [guard.loss(1.0 + 0.2 * n) for n in range(40)]
    alarms = [n for n, why in enumerate(said) if why]
    assert 1 <= alarms[0] <= 4
    assert guard.level == len(alarms) >= 3
    gaps = [b - a for a, b in itertools.pairwise(alarms)]
    assert all(10 <= gap <= 12 for gap in gaps), "precision needs time to show"
    assert all(guard.loss(0.9) is None for _ in range(60))


def test_losses_and_gradients_that_are_no_numbers_raise_it_at_once() -> None:
    for value in (float("nan"), float("inf")):
        guard = Guard()
        assert "loss is" in (guard.loss(value) or "")
        assert guard.level == 1
        guard = Guard()
        assert "not finite" in (guard.gradients(value) or "")


def test_gradients_that_blow_up_are_told_from_those_that_vary() -> None:
    guard = Guard()
    for n in range(30):
        assert guard.gradients(1.0 if n % 2 else 50.0) is None
    assert "grown to" in (guard.gradients(1e8) or "")


def test_an_error_above_the_limit_gives_just_the_levels_it_needs() -> None:
    guard = Guard(limit=1.0)
    assert guard.error(0.9) is None
    assert "37 times" in (guard.error(37.0) or "")
    assert guard.level == 3  # 37/4³ < 1 < 37/4²
    assert guard.error(37.0 / 4**3) is None
    assert guard.level == 3, "the codes are as they were: they still need it"
    assert guard.error(0.1 / 4**3) is None
    assert guard.level == 0


def test_each_level_halves_the_errors_of_every_codec() -> None:
    x = torch.randn(64, 64)
    for code in (Group(2), FixedPoint(4), Bounded(0.1), Bounded((0.1,) * 64), Group((2,) * 64)):
        wide, fine = (c.variance(x) for c in (code, code.finer(2)))
        assert wide is not None
        assert fine is not None
        assert fine < wide / 14
    assert Group(7).finer(3).bits == 8  # type: ignore[attr-defined]
    assert FixedPoint((9, 15)).finer(3).bits == (12, 16)  # type: ignore[attr-defined]
    assert Dual(bits=2).finer(1) == Dual(bits=3)
    assert Keep().finer(5) == Keep()


# -- a run ---------------------------------------------------------------------------------


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def _train(
    steps: int, session: actzip.Session | None, model: nn.Module, optimizer: torch.optim.Optimizer
) -> float:
    """The mean loss of the last ten steps."""
    split = digits.load(16)
    rng = torch.Generator().manual_seed(0)
    losses: list[float] = []
    for _ in range(steps):
        at = torch.randint(0, len(split.train_x), (64,), generator=rng)
        optimizer.zero_grad()
        loss: Tensor = F.cross_entropy(model(split.train_x[at]), split.train_y[at])
        loss.backward()
        optimizer.step()
        if session is not None:
            session.watch(loss)
        losses.append(loss.item())
    return sum(losses[-10:]) / 10


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_a_bound_set_absurdly_wide_is_seen_and_training_recovers() -> None:
    found = {}
    for name in ("plain", "wide", "guarded"):
        model = _model()
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        if name != "plain":
            method = actzip.Comet(sigma=3000.0, scope="all")
            guard = name == "guarded"
            session = actzip.compress(model, method=method, optimizer=optimizer, guard=guard)
        watched = session if name == "guarded" else None
        found[name] = _train(60, watched, model, optimizer)
    assert found["wide"] > 1.5 * found["plain"], "else the bound was not absurd"
    assert found["guarded"] < 1.3 * found["plain"]
    assert session.log
    assert re.match(r"step \d+: the codes make errors of .* times smaller", session.log[0])


def test_an_alarm_is_a_warning() -> None:
    model = _model()
    session = actzip.compress(model, method="fixed", guard=True)
    with pytest.warns(actzip.ActzipWarning, match="the loss is nan; from now on errors are 2"):
        session.watch(float("nan"))
    assert len(session.log) == 1
    model(torch.randn(8, 1, 16, 16))
    codes = {row.name: row.codec for row in session.stats().sites}
    assert "bits=3" in codes["4:ConvolutionBackward0.input"]


def test_a_session_without_a_guard_says_how_to_get_one() -> None:
    session = actzip.compress(_model())
    with pytest.raises(RuntimeError, match="guard=True"):
        session.watch(1.0)


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_a_guarded_session_is_resumed_with_its_levels() -> None:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    method = actzip.Comet(sigma=3000.0, scope="all", interval=3)
    session = actzip.compress(model, method=method, optimizer=optimizer, guard=True)
    _train(4, session, model, optimizer)
    states = copy.deepcopy((model.state_dict(), optimizer.state_dict(), session.state_dict()))
    expected = _train(4, session, model, optimizer)
    again = _model()
    again.load_state_dict(states[0])
    optimizer = torch.optim.SGD(again.parameters(), 0.05, momentum=0.9)
    optimizer.load_state_dict(states[1])
    session = actzip.compress(again, method=method, optimizer=optimizer, guard=True)
    session.load_state_dict(states[2])
    assert session._policy._guard.level > 0  # type: ignore[attr-defined]
    assert _train(4, session, again, optimizer) == expected


@pytest.mark.parametrize("options", [{"limit": 0.0}, {"interval": 0}, {"interval": 0.5}])
def test_wrong_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        actzip.methods.Guarded(actzip.Comet(), **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="method object"):
        actzip.methods.Guarded("comet")  # type: ignore[arg-type]
