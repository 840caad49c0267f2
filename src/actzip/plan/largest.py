"""The largest batch whose step would fit: bytes grow by the same for every sample, about."""

from __future__ import annotations

from collections.abc import Callable

_TRIES = 5


def largest(whole: Callable[[int], int], limit: int, start: int) -> int:
    """The most samples for which `whole(samples)` is at most `limit`, as far as a few sizes tell;
    0 when none of them fits.

    A line through the two sizes that are nearest says where to look next: another op may have the
    peak there, which bends the line. The answer itself was asked for, and fits.
    """
    seen = {samples: whole(samples) for samples in (start, 2 * start)}
    for _ in range(_TRIES):
        low, high = sorted(sorted(seen, key=lambda n: abs(seen[n] - limit))[:2])
        each = max(1.0, (seen[high] - seen[low]) / (high - low))
        guess = max(1, int(low + (limit - seen[low]) / each))
        if guess in seen:
            break
        seen[guess] = whole(guess)
    return max((n for n, nbytes in seen.items() if nbytes <= limit), default=0)
