"""Live bytes over one training step as a curve of a few hundred points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from actzip.memory.measure import Measurement

POINTS = 300  #: about as many as a chart can show

Point = tuple[float, int]


@dataclass(frozen=True)
class Curve:
    """(seconds, bytes) after each change, and when each phase of the step ends.

    The seconds are those of a step under the profiler: longer than without it.
    """

    points: list[Point] = field(default_factory=list)
    phases: list[tuple[str, float]] = field(default_factory=list)


def joined(phases: Sequence[tuple[str, Measurement]]) -> Curve:
    """One curve of measurements that followed each other; the time between them is left out."""
    points: list[Point] = [(0.0, 0)]
    ends: list[tuple[str, float]] = []
    seconds, level = 0.0, 0
    for name, found in phases:
        points += [
            (seconds + min(when, found.seconds), level + nbytes) for when, nbytes in found.timeline
        ]
        seconds, level = seconds + found.seconds, level + found.live_end
        ends.append((name, seconds))
    points.append((seconds, level))
    return Curve(thinned(points, POINTS), ends)


def thinned(points: list[Point], most: int) -> list[Point]:
    """At most about `most` points: of equal spans of time, the highest and the last."""
    if len(points) <= most:
        return points
    span = points[-1][0] / (most // 2) or 1.0
    buckets: dict[int, list[Point]] = {}
    for point in points:
        buckets.setdefault(int(point[0] / span), []).append(point)
    kept: list[Point] = []
    for bucket in buckets.values():
        highest = max(bucket, key=lambda point: point[1])
        kept += [highest] if highest is bucket[-1] else [highest, bucket[-1]]
    return kept
