"""Readings are of steps that are over: what they say of the next ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from actzip.control.reading import Reading, mean_in_sum

_DEVIATIONS = 3.0
_FEW = 3  #: ratios from which their deviation can be told
_UNKNOWN = 20.0  #: before that the next may be so many times below the smallest
_OLD = 8  #: readings from before this part of the run are of a network that is no more


def cautious(
    readings: Sequence[tuple[int, Reading]],
    lowest: Callable[[Sequence[float]], float],
    worst: bool = False,
) -> Reading | None:
    """The mean of (step, reading), with the signals as small beside it as `lowest` says.

    In sums over samples; the worst case, unless `worst` asks for it, is that of the last one.

    What an error does is relative to the gradient, and that differs from batch to batch. Errors
    are taken in parts of the tensor's own size, as it is now: it may have grown since.
    """
    newest = max((step for step, _ in readings), default=0)
    kept = [r for step, r in readings if step >= newest / _OLD]
    if not kept:
        return None
    middle, signals = mean_in_sum(kept, worst), {}
    power = float(kept[-1].power)
    for name in ("parameter", "input"):
        sums = [(r.numbers[name] * r.numbers["power"], r.numbers[name + "_signal"]) for r in kept]
        ratios = [s / w for w, s in sums if w > 0]
        if ratios:
            lowered = middle.numbers[name] * power * lowest(ratios)
            # not on the user's default device
            signals[name + "_signal"] = torch.tensor(lowered, dtype=torch.float64, device="cpu")
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
