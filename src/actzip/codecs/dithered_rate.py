"""How many bits the codes of a dithered quantizer take, from a few values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]

#: Where the dither is looked at, from |v| = 1/2 on: the codes of large steps differ there only.
_EDGES = np.array(
    (0, *(k / 256 for k in (1, 2, 3, 5, 7, 10, 14, 19, 25, 32, 40, 50, 64, 80, 100, 128)))
)
_CODES = 512  #: more are merged with their neighbours
_LARGEST = 1e280  #: NaN, infinity and what a small factor would make infinite count as zeros


def conditional_entropies(
    t: Tensor, factors: Sequence[float], above: Tensor | None = None
) -> list[float]:
    """Mean bits of round(t / factor + v) given v, for v uniform in ±1/2 and independent of these
    t; with `above`, which tells two sides apart, of both together.

    Where a code begins among sorted values tells how many there are of it: no value is rounded.
    """
    values = t.double().cpu().numpy()
    values = np.where(np.abs(values) < _LARGEST, values, 0.0)
    if not len(values):
        return [0.0] * len(factors)
    sides = [values]
    if above is not None:
        is_above = above.cpu().numpy()
        sides = [values[is_above], values[~is_above]]
    sides = [np.sort(side) for side in sides if len(side)]
    return [_entropy([side / factor for side in sides], len(values)) for factor in factors]


def _entropy(sides: list[Floats], n: int) -> float:
    half = 0.5 - (_EDGES[1:] + _EDGES[:-1]) / 2
    v, share = np.concatenate([half, -half]), np.tile(np.diff(_EDGES), 2)
    largest = max(max(abs(side[0]), abs(side[-1])) for side in sides) + 0.5
    # that many codes are merged with neighbours, which takes away the bits of their number
    scale = max(1.0, 2 * largest / _CODES)
    logs, codes = np.zeros(len(v)), np.zeros(len(v))
    for side in sides:
        first, last = np.floor((side[[0, -1]] + [-0.5, 0.5]) / scale)
        begins = np.arange(first, last + 3) - 0.5
        before = np.searchsorted(side, begins * scale - v[:, None])
        counts = np.diff(before, axis=1)
        logs += (counts * np.log2(np.maximum(counts, 1))).sum(1)
        codes += (counts > 0).sum(1)
    # few values see too few of the codes (Miller and Madow)
    entropy = math.log2(n) - logs / n + (codes - 1) / (2 * n * math.log(2))
    return float((entropy * share).sum()) + math.log2(scale)


def stored_bits(entropy: float) -> float:
    """What is stored for an element of so many bits, with tables and states, in large tensors."""
    return 1.015 * entropy + 0.003
