"""Readings are of steps that are over: what they say of the next ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from actzip.control.reading import Reading, mean

_OLD = 8  #: readings from before this part of the run are of a network that is no more


def cautious(readings: Sequence[tuple[int, Reading]]) -> Reading | None:
    """The mean of (step, reading), with the signals as small beside it as in the worst of them.

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
        least = [s / w for w, s in sums if w > 0]
        if least:
            signals[signal] = getattr(middle, name).sum() * kept[-1].power * min(least)
    return replace(middle, **signals)


def middle(weights: Sequence[tuple[int, Tensor]]) -> NDArray[np.float64]:
    """The mean of (step, numbers) of the same steps."""
    newest = max(step for step, _ in weights)
    kept = [w.numpy() for step, w in weights if step >= newest / _OLD]
    found: NDArray[np.float64] = np.mean([w for w in kept if w.shape == kept[-1].shape], axis=0)
    return found
