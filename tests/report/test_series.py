"""What the charts are given: means over seeds, no more points than they can show."""

from __future__ import annotations

from typing import Any

import pytest

from actzip.report import series


def run(label: str, losses: list[float], top1: list[float]) -> dict[str, Any]:
    tests = [{"epoch": 2 * i + 2, "top1": value} for i, value in enumerate(top1)]
    curve = {"points": [[0.0, 0], [0.25, 9]], "phases": [["forward", 0.125], ["backward", 0.25]]}
    modules = [{"name": "stem", "raw_bytes": 8, "stored_bytes": 2}]
    sites = {
        "a.b:ReluBackward0.result": {"kind": "bits", "steps": [1], "values": [2.0]},
        ":MmBackward0.self": {"kind": "error", "steps": [1, 3], "values": [0.5, 0.25]},
    }
    cost = {"curve": curve, "modules": modules}
    return {"label": label, "losses": losses, "tests": tests, "cost": cost, "sites": sites}


RUNS = [run("plain", [4.0, 2.0], [0.5, 0.75]), run("plain", [2.0, 1.0], [0.25, 0.75])]


def test_losses_and_metrics_are_means_over_the_seeds() -> None:
    (loss,) = series.loss(RUNS)
    assert loss["faint"] == [[1, 3.0], [2, 1.5]]
    assert series.tests(RUNS, "top1") == [{"label": "plain", "points": [[2, 0.375], [4, 0.75]]}]


def test_phases_are_as_wide_for_one_method_as_for_another() -> None:
    quick, slow = (run(label, [1.0], [0.5]) for label in ("plain", "comet"))
    quick["cost"]["curve"] = {
        "points": [[0.0, 0], [0.5, 4], [1.0, 8], [2.0, 6], [3.0, 0], [3.5, 1]],
        "phases": [["forward", 1.0], ["backward", 3.0], ["update", 3.5]],
    }
    slow["cost"]["curve"] = {
        "points": [[0.0, 0], [4.0, 2], [7.9, 0], [8.0, 0]],
        "phases": [["forward", 4.0], ["backward", 7.0], ["update", 8.0]],
    }
    first, second = series.memory([quick, slow])
    assert first["points"] == [[0, 0], [0.5, 4], [1.0, 8], [1.75, 6], [2.5, 0], [2.7, 1]]
    assert second["points"] == [[0, 0], [1.0, 2], [2.68, 0], [2.7, 0]]
    assert series.bands([quick, slow]) == [["forward", 1.0], ["backward", 2.5], ["update", 2.7]]


def test_modules_and_sites_are_of_the_first_run() -> None:
    assert series.modules(RUNS) == {"plain": [["stem", 8, 2]]}
    found = series.sites(RUNS)["plain"]
    assert found["last"] == 2
    assert [row["name"] for row in found["kinds"]["bits"]] == ["a.b · Relu.result"]
    assert [row["name"] for row in found["kinds"]["error"]] == ["(model) · Mm.self"]


def test_methods_that_cannot_tell_are_left_out() -> None:
    bare = run("checkpoint", [1.0], [0.5])
    bare["cost"] = {"curve": {"points": [], "phases": []}, "modules": []}
    bare["sites"] = {}
    assert series.memory([bare]) == series.bands([bare]) == []
    assert series.modules([bare]) == {}
    assert series.sites([bare]) == {}


def test_long_runs_are_thinned_and_end_where_they_end() -> None:
    (loss,) = series.loss([run("plain", [float(i) for i in range(10_001)], [0.5])])
    assert len(loss["faint"]) <= series.POINTS
    assert loss["faint"][-1] == [10_001, 10_000.0]


def test_smoothing_starts_at_the_first_value_and_follows() -> None:
    assert series.smoothed([3.0]) == [3.0]
    assert series.smoothed([5.0] * 100) == pytest.approx([5.0] * 100)
    found = series.smoothed([0.0] * 100 + [1.0] * 100)
    assert found[99] == pytest.approx(0.0)
    assert 0.5 < found[110] < found[199] <= 1.0
