"""A plan's bytes against those of a real step."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import actzip
from actzip import planning
from actzip.memory.measure import live_peak
from actzip.methods import resolve
from actzip.plan.largest import largest
from actzip.plan.step import Step, step
from actzip.plan.target import builtin, imported
from actzip.tasks import profile_target
from actzip.tasks.profile_target import Subject
from plan.plan_nets import CONFIGS

METHODS = ("plain", "lossless", "actnn")


def predicted(target: Any, fake: Any, batch: int) -> dict[str, Step]:
    return {
        name: step(target, name, None if name == "plain" else resolve(name, {}), batch, fake)
        for name in METHODS
    }


def measured(subject: Subject, method: str) -> tuple[int, int]:
    """Saved bytes and the live peak of the fourth step, which no method looks at."""
    session = actzip.compress(subject.model, method="lossless" if method == "plain" else method)
    try:
        for _ in range(3):
            subject.loss().backward()
            subject.model.zero_grad()
        found = live_peak(lambda: subject.loss().backward())
        stats = session.stats()
    finally:
        session.remove()
    subject.model.zero_grad()
    if method == "plain":
        return stats.raw_bytes, live_peak(lambda: subject.loss().backward())
    return stats.stored_bytes, found


def hold(found: dict[str, Step], subject: Subject) -> None:
    for method in METHODS:
        saved, peak = measured(subject, method)
        assert found[method].stored_bytes == pytest.approx(saved, rel=0.02), method
        assert found[method].live_peak == pytest.approx(peak, rel=0.1), method


@pytest.mark.parametrize("name", CONFIGS)
def test_saved_bytes_and_live_peak_are_those_of_a_real_step(name: str) -> None:
    config = CONFIGS[name]
    with planning.fakes() as fake:
        found = predicted(builtin(config, fake), fake, config.batch)
    hold(found, profile_target.builtin(config))


def test_a_users_model_and_another_batch_than_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with planning.fakes() as fake:
        target = imported("plan.plan_nets:gated", None, "adamw", fake)
        assert target.batch == 32
        found = predicted(target, fake, 96)
    assert target.weights == target.gradients == target.state // 2
    subject = profile_target.imported("plan.plan_nets:gated")
    inputs = torch.randn(96, 64)
    hold(found, Subject("larger", subject.model, lambda: subject.model(inputs).mean()))


@pytest.mark.parametrize("method", ["plain", "lossless"])
def test_a_plan_of_more_than_the_machine_has_allocates_nothing(method: str) -> None:
    config = CONFIGS["resnet"]
    with planning.fakes() as fake:
        target = builtin(config, fake)
        with actzip.measure() as found:
            chosen = None if method == "plain" else resolve(method, {})
            made = step(target, method, chosen, 100_000, fake)
    assert made.live_peak > 8 << 30
    assert found.live_peak < 1 << 20


def test_nothing_is_left_behind_for_real_tensors() -> None:
    with planning.fakes():
        assert planning.active
    assert not planning.active
    assert not planning.is_fake(torch.zeros(1))


def test_the_largest_batch_fits_and_was_asked_for() -> None:
    asked = []

    def whole(samples: int) -> int:
        asked.append(samples)
        return 1000 + max(30 * samples, 50 * samples - 400)

    found = largest(whole, 9000, 8)
    assert found in asked
    assert whole(found) <= 9000 < whole(found + 1)
    assert largest(whole, 900, 8) == 0
