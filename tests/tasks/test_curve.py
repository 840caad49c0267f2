"""The curve of a step keeps its peak, its end and its phases."""

from __future__ import annotations

from actzip.memory.measure import Measurement
from actzip.tasks.curve import Curve, joined, thinned


def test_phases_follow_each_other_in_time_and_level() -> None:
    forward = Measurement(live_peak=30, live_end=20, seconds=1.0, timeline=[(0.5, 30), (0.75, 20)])
    backward = Measurement(live_peak=5, live_end=-20, seconds=2.0, timeline=[(1.0, 5), (1.5, -20)])
    found = joined([("forward", forward), ("backward", backward)])
    points = [(0.0, 0), (0.5, 30), (0.75, 20), (2.0, 25), (2.5, 0), (3.0, 0)]
    assert found == Curve(points, [("forward", 1.0), ("backward", 3.0)])


def test_thinning_keeps_peak_and_end() -> None:
    points = [(step / 1000, (step * 7919) % 1000) for step in range(1000)]
    points[123] = (0.123, 5000)
    kept = thinned(points, 60)
    assert len(kept) <= 62
    assert (0.123, 5000) in kept
    assert kept[-1] == points[-1]
    assert kept == sorted(kept)


def test_a_short_curve_stays_as_it_is() -> None:
    points = [(0.0, 1), (0.0, 2), (1.0, 3)]
    assert thinned(points, 3) is points
    assert thinned([(0.0, step) for step in range(9)], 4) == [(0.0, 8)]
