"""benchmarks/accuracy.py: its book of results loses nothing, its verdict is the issue's rule."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from scripts import load

accuracy = load("accuracy")


def run(seed: int, method: str = "plain", final: float = 0.5) -> dict[str, Any]:
    return {
        "case": "fashion-vit",
        "method": method,
        "options": {},
        "seed": seed,
        "final": final,
        "ratio": 2.0,
        "step_seconds": 0.1,
        "settings": accuracy.CASES["fashion-vit"],
    }


def add(path: Path, first: int) -> None:
    book = load("accuracy").Book(path)
    for seed in range(first, first + 20):
        book.add(run(seed))


def test_two_instances_at_once_lose_no_run(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.json"
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=add, args=(path, first)) for first in (0, 20)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    book = accuracy.Book(path)
    assert [each["seed"] for each in book.runs()] == list(range(40))
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_in_the_book_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = accuracy.Book(tmp_path / "accuracy.json")
    book.add(run(0))
    jobs = [accuracy.Job("fashion-vit", "plain", 0)]
    assert book.has(jobs[0])
    assert not book.has(accuracy.Job("fashion-vit", "plain", 1))
    assert not book.has(accuracy.Job("fashion-vit", "fixed", 0, {"bits": 2}))

    def never(*args: object) -> None:
        raise AssertionError("ran again")

    monkeypatch.setitem(accuracy.work.__globals__, "call_fresh", never)
    accuracy.work(jobs, book, 1, None)


def test_runs_of_a_case_that_was_changed_do_not_count(tmp_path: Path) -> None:
    book = accuracy.Book(tmp_path / "accuracy.json")
    old = run(0)
    book.add({**old, "settings": {**old["settings"], "epochs": 99}})
    assert book.runs() == []
    book.add(old)
    assert book.runs() == [old]


@pytest.mark.parametrize(
    ("finals", "plain", "verdict"),
    [
        ({0: 0.596, 1: 0.598}, {0: 0.6, 1: 0.6}, ("-0.30", "as plain")),
        ({0: 0.59, 1: 0.59}, {0: 0.6, 1: 0.6}, ("-1.00", "worse")),
        ({0: 0.57, 1: 0.61}, {0: 0.58, 1: 0.62}, ("-1.00", "as plain")),  # plain spreads by 2.8
        ({0: 0.7, 5: 0.1}, {0: 0.6}, ("+10.00", "as plain")),  # seed 5 has no partner
        ({3: 0.7}, {0: 0.6}, ("no plain run", "")),
    ],
)
def test_the_verdict_is_half_a_point_or_plains_own_deviation(
    finals: dict[int, float], plain: dict[int, float], verdict: tuple[str, str]
) -> None:
    assert accuracy.compare(finals, plain) == verdict


def test_every_case_is_a_valid_config_for_every_baseline() -> None:
    for case in accuracy.CASES:
        for method in ("plain", "checkpoint", "bf16", "lossless"):
            config = accuracy.Job(case, method, 2).config(1, False)
            assert (config.seed, config.threads, config.method) == (2, 1, method)
