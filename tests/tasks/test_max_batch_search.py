"""The largest batch is one that was tried, and the limit is kept by real processes."""

from __future__ import annotations

import os
import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actzip.tasks import max_batch_search
from actzip.tasks.config import make
from actzip.tasks.max_batch_search import Largest, StepError, Try, attempt, floor, search
from actzip.tasks.ranks import Ranks


@given(st.integers(0, 5000), st.integers(1, 6000), st.integers(1, 4096))
def test_the_search_ends_at_the_largest_that_fits(largest: int, start: int, most: int) -> None:
    tried: list[int] = []

    def fits(batch: int) -> Try:
        tried.append(batch)
        return Try(batch, batch <= largest)

    found = search(fits, start, most, 0.0, 1 << 30)
    assert found == min(largest, most)
    assert found == 0 or found in tried
    assert len(tried) == len(set(tried)) <= 28
    assert max(tried, default=0) <= most


@given(
    largest=st.integers(1, 5000),
    start=st.integers(8, 200),
    held=st.sampled_from([0, 300, 2000]),
    bend=st.floats(0.9, 1.1),
    noise=st.floats(0, 0.01),
    seed=st.integers(0, 9),
)
def test_ten_tries_are_enough_where_memory_grows_about_as_the_batch_does(
    largest: int, start: int, held: int, bend: float, noise: float, seed: int
) -> None:
    rng = random.Random(seed)
    limit = held + 1000 * largest**bend
    tried: list[Try] = []

    def step(batch: int) -> Try:
        peak = held + 1000 * batch**bend * (1 + noise * rng.uniform(-1, 1))
        tried.append(Try(batch, peak <= limit, int(peak) if peak <= limit else None))
        return tried[-1]

    found = search(step, start, 65536, 0.02, int(limit), held)
    assert len(tried) <= 10
    assert found == max((each.batch for each in tried if each.fits), default=0)
    off = 0.02 + 2 * noise / bend
    assert largest * (1 - off) - 1 <= found <= largest * (1 + off) + 1


def test_a_line_that_is_no_use_costs_no_more_than_halving() -> None:
    tried = []

    def step(batch: int) -> Try:
        tried.append(batch)
        return Try(batch, batch <= 700, 5 if batch <= 700 else None)

    assert search(step, 16, 65536, 0.0, 1000, 5) == 700
    assert len(tried) <= 17


def test_real_steps_fit_under_a_wide_limit_and_not_under_a_narrow_one() -> None:
    config = make(
        model="resnet8", batch=100, side=8, threads=1, sizes={"width": 8}, method="lossless"
    )
    found = attempt(config, 4 << 30)
    assert found.fits, found
    assert found.resident_peak is not None
    assert 50 << 20 < found.resident_peak < 4 << 30
    assert found.seconds is not None
    assert found.seconds > 0
    assert attempt(config, 20 << 20) == Try(100, False, why="above the limit")


def test_two_processes_hold_more_than_one_and_fail_together() -> None:
    config = make(model="resnet8", batch=8, side=8, threads=1, sizes={"width": 64}, method="plain")
    found = attempt(config, 4 << 30, world=2)
    assert found.fits, found
    assert found.resident_peak is not None
    one = attempt(config, 4 << 30).resident_peak
    assert one is not None
    assert found.resident_peak > one  # gradients are copied into what is exchanged
    assert attempt(config, 20 << 20, world=2) == Try(8, False, why="above the limit")


def _one_ends(config: object, limit: int, ranks: Ranks, store: str) -> tuple[int, float]:
    if ranks.rank == 1:
        os._exit(max_batch_search.OVER)
    while True:  # as one that reads half a record of the store again and again
        pass


def test_a_process_that_does_not_notice_that_another_has_ended_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(max_batch_search, "steps", _one_ends)
    monkeypatch.setattr(max_batch_search, "_NOTICE", timedelta(seconds=0.5))
    found = attempt(make(batch=8, method="plain"), 4 << 30, world=2)
    assert (found.fits, found.why) == (False, "above the limit")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("exit code 1: Traceback\n  x\nMemoryError: no room\n", "MemoryError: no room"),
        (
            "exit code 1: x\nRuntimeError: DefaultCPUAllocator: can't allocate memory: 9 bytes",
            "RuntimeError: DefaultCPUAllocator: can't allocate memory: 9 bytes",
        ),
        (
            "exit code -9: it ended before it could answer (out of memory?)",
            "killed, as the system does when memory runs out",
        ),
    ],
)
def test_a_step_without_memory_does_not_fit_and_says_why(
    monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError(f"steps failed in its fresh process, {text}")

    monkeypatch.setattr(max_batch_search, "call_fresh", broken)
    assert attempt(make(batch=3), 1 << 30) == Try(3, False, why=why)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("exit code 1: Traceback\n  x\nValueError: no such data\n", "ValueError: no such data"),
        (
            "exit code -11: it ended before it could answer (out of memory?)",
            r"exit code -11: it ended",
        ),
    ],
)
def test_a_step_that_fails_for_another_reason_is_no_question_of_the_batch(
    monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError(f"steps failed in its fresh process, {text}")

    monkeypatch.setattr(max_batch_search, "call_fresh", broken)
    with pytest.raises(StepError, match=why):
        attempt(make(batch=3), 1 << 30)
    with pytest.raises(StepError, match=why):
        floor(make(batch=3))


def test_the_floor_is_what_a_process_holds_before_its_first_step() -> None:
    found = floor(make(model="resnet8", batch=100, side=8, sizes={"width": 64}))
    assert 50 << 20 < found.imports < 4 << 30
    assert found.model > 1 << 20  # 1.2 million weights of four bytes, and the digits
    assert found.total == found.imports + found.model


def test_a_process_that_ended_above_the_limit_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(max_batch_search, "call_fresh", lambda *args: (101, 0.5))
    assert attempt(make(batch=3), 100) == Try(3, False, 101, 0.5, "above the limit")
    assert attempt(make(batch=3), 101) == Try(3, True, 101, 0.5)


def test_the_reason_is_that_of_the_smallest_batch_that_failed() -> None:
    tries = [Try(8, False, why="b"), Try(4, False, why="a"), Try(2, True, 10, 0.5)]
    found = Largest("plain", 2, tries)
    assert found.best == tries[2]
    assert found.why == "a"
    assert Largest("plain", 0, tries[:2]).best is None
