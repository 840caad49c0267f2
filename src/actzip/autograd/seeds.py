"""A seed of its own for each payload of a pass."""

from __future__ import annotations

from collections.abc import Iterator

_BITS = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def seeds(start: int) -> Iterator[int]:
    """Unrelated numbers for neighbouring starts (session and step) and draws: splitmix64."""
    z = start
    while True:  # `seed_at`, written out: one is drawn for each stored tensor
        z = (z + _GOLDEN) & _BITS
        x = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _BITS
        yield x ^ (x >> 31)


def seed_at(start: int, draw: int) -> int:
    """One of them: draws count from 1."""
    z = (start + draw * _GOLDEN) & _BITS
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _BITS
    return z ^ (z >> 31)
