"""One row for each method out of runs of several seeds."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from actzip.tasks.config import make
from actzip.tasks.result import Result
from actzip.tasks.step_memory import Cost
from actzip.tasks.summary import Row, as_csv, rows


def result(
    method: str, seed: int, metric: float, seconds: float, stored: int = 50, peak: int | None = 7
) -> Result:
    options = {"bits": 3} if method == "actnn" else {}
    config = make(method=method, seed=seed, options=options)
    cost = Cost(raw_bytes=100, stored_bytes=stored, held_bytes=stored, live_peak=200 + seed)
    tests = [{"epoch": 1, "top1": metric}]
    return Result(config, {"top1": metric}, tests, [0.5], seconds, 1.0, cost, peak)


def test_seeds_become_one_row_with_their_spread() -> None:
    found = rows(
        [
            result("plain", 0, 0.9, 0.1, stored=100),
            result("actnn", 0, 0.8, 0.2, stored=20),
            result("plain", 1, 0.94, 0.3, stored=100),
            result("plain", 2, 0.92, 0.2, stored=100),
        ]
    )
    plain, actnn = found
    assert (plain.label, plain.seeds) == ("plain", [0, 1, 2])
    assert plain.metric == pytest.approx(0.92)
    assert plain.spread == pytest.approx(0.02)
    assert (plain.step_seconds, plain.slower) == (0.2, 1.0)
    assert (plain.live_peak, plain.resident_peak) == (201, 7)
    assert (actnn.label, actnn.spread, actnn.ratio) == ("actnn:bits=3", None, 5.0)
    assert (actnn.stored_bytes, actnn.slower) == (20, 1.0)


def test_ratios_are_to_what_plain_keeps() -> None:
    """Also where the method's own tensors are smaller from the start, as in bf16."""
    half = result("bf16", 0, 0.9, 0.1)
    half = replace(half, cost=Cost(50, 50, 50, 100))
    assert [row.ratio for row in rows([result("plain", 0, 0.9, 0.1, stored=100), half])] == [1, 2]
    assert [row.ratio for row in rows([half])] == [1]


def test_without_a_plain_run_step_times_stand_alone() -> None:
    (row,) = rows([result("comet", 0, 0.9, 0.1)])
    assert (row.step_seconds, row.slower) == (0.1, None)


def test_a_method_that_failed_has_a_row_and_loses_no_other() -> None:
    found = rows([result("plain", 0, 0.9, 0.1)], {"comet": "out of memory"})
    assert [row.label for row in found] == ["plain", "comet"]
    assert found[1] == Row("comet", [], error="out of memory")
    half = rows([result("plain", 0, 0.9, 0.1)], {"plain": "out of memory"})
    assert [(row.seeds, row.error) for row in half] == [([0], "out of memory")]


def test_unknown_resident_peaks_stay_unknown() -> None:
    (row,) = rows([result("plain", 0, 0.9, 0.1, peak=None)])
    assert row.resident_peak is None


def test_csv_has_a_line_for_each_row() -> None:
    found = rows([result("actnn", s, 0.9, 0.1) for s in (0, 4)], {"comet": 'no "room", none'})
    lines = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert [line["label"] for line in lines] == ["actnn:bits=3", "comet"]
    assert (lines[0]["seeds"], lines[0]["stored_bytes"], lines[0]["slower"]) == ("0 4", "50", "")
    assert lines[1]["error"] == 'no "room", none'
