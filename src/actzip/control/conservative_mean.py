"""Readings are of steps that are over: what they say of the next ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from actzip.control.reading import Reading, mean

_DEVIATIONS = 3.0
_FEW = 3  #: ratios from which their deviation can be told
_UNKNOWN = 20.0  #: before that the next may be so many times below the smallest
_OLD = 8  #: readings from before this part of the run are of a network that is no more


def cautious(
    readings: Sequence[tuple[int, Reading]],
    lowest: Callable[[Sequence[float]], float],
) -> Reading | None:
    """The mean of (step, reading), with the signals as small beside it as `lowest` says.

    What an error does is relative to the gradient, and that differs from batch to batch. Errors
    are taken in parts of the tensor's own size, as it is now: it may have grown since.
    """
    newest = max((step for step, _ in readings), default=0)
    kept = [r for step, r in readings if step >= newest / _OLD]
    middle = mean(kept)
    if middle is None:
        return None
    signals = {}
    for name, signal in (("parameter", "parameter_signal"), ("input", "input_signal")):
        sums = [(getattr(r, name).sum() * r.power, getattr(r, signal)) for r in kept]
        ratios = [float(s / w) for w, s in sums if w > 0]
        if ratios:
            signals[signal] = getattr(middle, name).sum() * kept[-1].power * lowest(ratios)
    return replace(middle, **signals)


def unlikely(ratios: Sequence[float]) -> float:
    """What the next one will hardly be below: three deviations of the logarithm under its mean.

    How far the gradients of a batch add up, and do not cancel, is spread like this: by a factor of
    1.3 from batch to batch in a ResNet-20 that has learned for a while, by 2.5 in a ResNet-50 that
    has hardly begun. The mean of k numbers is itself off by the k-th part of their variance.
    """
    if len(ratios) < _FEW or min(ratios) <= 0:
        return min(ratios) / _UNKNOWN
    logs = np.log(ratios)
    spread = float(logs.std(ddof=1)) * math.sqrt(1 + 1 / len(ratios))
    return math.exp(float(logs.mean()) - _DEVIATIONS * spread)


def middle(weights: Sequence[tuple[int, Tensor]]) -> NDArray[np.float64]:
    """The mean of (step, numbers) of the same steps."""
    newest = max(step for step, _ in weights)
    kept = [w.numpy() for step, w in weights if step >= newest / _OLD]
    found: NDArray[np.float64] = np.mean([w for w in kept if w.shape == kept[-1].shape], axis=0)
    return found
