"""When methods look at the gradients: often while a network changes fast, then rarely.

A look is worth as much as what it tells has changed since the last one. Early in training that goes
by the logarithm of the step, and a bound or a spread of bits that is two sevenths older than it was
made for is still a good one. So looks come at steps 0 to 7, then two sevenths further each time,
and at last every `interval` steps: with 200 that is 28 in the first 1000 steps.
"""

from __future__ import annotations

import functools

INTERVAL = 200  #: steps between two looks, later on


def gap(step: int, interval: int = INTERVAL) -> int:
    """Steps from a look at `step` to the next one."""
    return min(interval, max(1, 2 * step // 7))


def is_look(step: int, interval: int = INTERVAL) -> bool:
    """Whether `step` is one of the looks, for a method that looks at no others."""
    return step % interval == 0 if step >= 4 * interval else step in _early(interval)


@functools.lru_cache(maxsize=64)
def _early(interval: int) -> frozenset[int]:
    """The looks before all gaps are `interval`."""
    found, step = set(), 0
    while step < 4 * interval:
        found.add(step)
        step += gap(step, interval)
    return frozenset(found)
