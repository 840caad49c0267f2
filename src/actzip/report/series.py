"""From the JSON of runs to what the charts draw, no more than they can show."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

POINTS = 400  #: of a curve
#: of the phases of a step, as a chart shows them
WIDTHS = {"forward": 1.0, "backward": 1.5, "update": 0.2}

Run = dict[str, Any]
Series = dict[str, Any]


def groups(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The runs of each method, in their order."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run["label"], []).append(run)
    return found


def memory(runs: Iterable[Run]) -> list[Series]:
    """Live bytes over a step of each method's first run.

    Every phase is as wide for one method as for another: curves compare by where they are in the
    step, not by how fast a machine was under the profiler.
    """
    return [
        {"label": label, "points": list(_phased(**first["cost"]["curve"]))}
        for label, (first, *_) in groups(runs).items()
        if first["cost"]["curve"]["points"]
    ]


def bands(runs: Iterable[Run]) -> list[list[Any]]:
    """[name, where it ends] of each phase that `memory` shows."""
    for run in runs:
        phases = [name for name, _ in run["cost"]["curve"]["phases"]]
        ends = itertools.accumulate(WIDTHS[name] for name in phases)
        if phases:
            return [[name, _short(end)] for name, end in zip(phases, ends, strict=True)]
    return []


def _phased(points: Sequence[Sequence[float]], phases: Sequence[Sequence[Any]]) -> Iterator[Any]:
    """The points of a curve in seconds, in widths of its phases."""
    at, began, left = 0, 0.0, 0.0
    for seconds, nbytes in points:
        while at < len(phases) - 1 and seconds > phases[at][1]:
            left, began = left + WIDTHS[phases[at][0]], phases[at][1]
            at += 1
        name, end = phases[at]
        part = min(1.0, (seconds - began) / (end - began)) if end > began else 1.0
        yield [_short(left + WIDTHS[name] * part), nbytes]


def loss(runs: Iterable[Run]) -> list[Series]:
    """The mean loss of each method's seeds by step, smoothed, and as it was."""
    found = []
    for label, group in groups(runs).items():
        values = _means([run["losses"] for run in group])
        raw = _thinned([(step, value) for step, value in enumerate(values, 1)])
        smooth = _thinned(list(enumerate(smoothed(values), 1)))
        found.append({"label": label, "points": smooth, "faint": raw})
    return found


def tests(runs: Iterable[Run], metric: str) -> list[Series]:
    """The mean metric of each method's seeds by epoch."""
    found = []
    for label, group in groups(runs).items():
        epochs = [test["epoch"] for test in group[0]["tests"]]
        values = _means([[test[metric] for test in run["tests"]] for run in group])
        points = [[epoch, _short(value)] for epoch, value in zip(epochs, values, strict=False)]
        found.append({"label": label, "points": points})
    return found


def modules(runs: Iterable[Run]) -> dict[str, list[list[Any]]]:
    """[name, raw bytes, stored bytes] of each module, for each method that knows its modules."""
    return {
        label: [
            [share["name"], share["raw_bytes"], share["stored_bytes"]]
            for share in first["cost"]["modules"]
        ]
        for label, (first, *_) in groups(runs).items()
        if first["cost"]["modules"]
    }


def sites(runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    """How precisely the tensors of each method's first run were stored, by kind of figure."""
    found: dict[str, dict[str, Any]] = {}
    for label, (first, *_) in groups(runs).items():
        kinds: dict[str, list[Series]] = {}
        for name, site in first["sites"].items():
            row = {"name": readable(name), "steps": site["steps"], "values": site["values"]}
            kinds.setdefault(site["kind"], []).append(row)
        if kinds:
            found[label] = {"last": len(first["losses"]), "kinds": kinds}
    return found


def readable(site: str) -> str:
    """A site's name for people: its module and op."""
    module, _, rest = site.partition(":")
    return f"{module or '(model)'} · {rest.replace('Backward0', '')}"


def smoothed(values: Sequence[float]) -> list[float]:
    """A running mean over about a twentieth of the values, at most of 50."""
    weight = 1 / max(1.0, min(50.0, len(values) / 20))
    found: list[float] = []
    mean = share = 0.0
    for value in values:
        mean += weight * (value - mean)
        share += weight * (1 - share)  # of the mean that is not the zero it began with
        found.append(mean / share)
    return found


def _means(rows: list[list[float]]) -> list[float]:
    return [statistics.fmean(each) for each in zip(*rows, strict=False)]


def _thinned(points: list[tuple[int, float]]) -> list[list[float]]:
    """Evenly chosen points, the last one always among them."""
    every = -(-len(points) // POINTS)
    kept = points[::-1][::every][::-1] if points else []
    return [[step, _short(value)] for step, value in kept]


def _short(value: float) -> float:
    return float(f"{value:.5g}")
