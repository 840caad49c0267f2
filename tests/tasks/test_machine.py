"""Which methods are worth their time on a machine."""

from __future__ import annotations

import pytest
import torch

from actzip.tasks import machine


def test_only_bf16_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "bf16_slowdown", lambda: 9.6)
    assert machine.why_not("plain") == machine.why_not("actnn") == ""
    assert machine.why_not("bf16").startswith("in bf16 a step takes 10 times as long")
    monkeypatch.setattr(machine, "bf16_slowdown", lambda: 0.6)
    assert machine.why_not("bf16") == ""


def test_the_slowdown_is_that_of_bf16_to_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {True: 6.0, False: 1.5}
    monkeypatch.setattr(machine, "_step_seconds", seconds.__getitem__)
    assert machine.bf16_slowdown() == 4.0


def test_the_trial_runs_in_both_types_and_leaves_the_random_stream() -> None:
    before = torch.get_rng_state()
    assert machine.bf16_slowdown() > 0
    assert torch.equal(torch.get_rng_state(), before)
