"""How often each method looks at the gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

import actzip
from actzip.control.schedule import gap, is_look

LEARNING = {
    "actnn": actzip.ActNN(),
    "comet": actzip.Comet(),
    "comet_all": actzip.Comet(scope="all"),
    "comet_uncompressed": actzip.Comet(warmup="uncompressed"),
    "acgc": actzip.ACGC(),
    "acgc_fixed": actzip.ACGC(codec="fixed"),
    "auto": actzip.Auto(),
}
GUARDED = {f"{name}_guarded": actzip.Guarded(method) for name, method in LEARNING.items()}
METHODS: dict[str, actzip.Method] = {
    **LEARNING,
    **GUARDED,
    "fixed_guarded": actzip.Guarded(actzip.Fixed()),
}
STEPS = 2401
TELLING = 4  #: passes from a look on until a method has learned from it


def looks(method: actzip.Method, restless: bool) -> list[int]:
    """The steps with a look. `restless`: gradients are a thousand times larger or smaller in each
    look than in the one before, so that bounds and spreads never settle. Steps in which nothing is
    looked at or learned are counted only."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(4, 8, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 14, 4))
    optimizer = torch.optim.SGD(model.parameters(), 1e-9, momentum=0.5)
    session = actzip.compress(model, method, optimizer=optimizer, min_bytes=0)
    x, found, left = torch.randn(8, 4, 16), [], 0
    for step in range(STEPS):
        left = TELLING if session._wants_look() else left - 1
        if left <= 0:
            session.step += 1
            continue
        size = 1e3 if restless and len(found) % 2 else 1.0
        (model(x).square().mean() * size).backward()
        if session._looks:
            found.append(step)
        optimizer.step()
        optimizer.zero_grad()
    return found


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
@pytest.mark.parametrize("restless", [False, True], ids=["calm", "restless"])
@pytest.mark.parametrize("name", METHODS)
def test_at_most_thirty_looks_in_a_thousand_steps_and_then_one_in_two_hundred(
    name: str, restless: bool
) -> None:
    found = looks(METHODS[name], restless)
    assert sum(step < 1000 for step in found) <= 30
    late = [step for step in found if step >= 1000]
    assert late
    assert all(b - a >= 200 for a, b in itertools.pairwise(late))
    if "uncompressed" not in name:
        assert sum(step < 30 for step in found) >= 4


def test_looks_are_frequent_at_first_and_then_even() -> None:
    found = [step for step in range(2001) if is_look(step)]
    assert found[:14] == [0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 14, 18, 23, 29]
    assert found[-7:] == [800, 1000, 1200, 1400, 1600, 1800, 2000]
    assert sum(step < 1000 for step in found) == 28
    assert all(b <= a + gap(a) for a, b in itertools.pairwise(found))


@pytest.mark.parametrize("interval", [1, 2, 3, 7, 100, 1000])
def test_no_gap_is_longer_than_was_asked_for(interval: int) -> None:
    found = [step for step in range(6001) if is_look(step, interval)]
    gaps = [b - a for a, b in itertools.pairwise(found)]
    assert max(gaps) == interval
    assert gaps[-3:] == [interval] * 3 or interval == 1000
