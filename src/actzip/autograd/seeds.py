"""A seed of its own for each payload of a pass."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

_BITS = (1 << 64) - 1


def seeds(start: int) -> Iterator[int]:
    """Unrelated numbers for neighbouring starts (session and step) and draws: splitmix64."""
    return (seed_at(start, draw) for draw in count(1))


def seed_at(start: int, draw: int) -> int:
    """One of them: draws count from 1."""
    return _mix(start + draw * 0x9E3779B97F4A7C15)


def _mix(z: int) -> int:
    z &= _BITS
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _BITS
    return z ^ (z >> 31)
