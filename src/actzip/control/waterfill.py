"""Shares what layers can stand of travelling noise among the sites that make it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def fill(weight: Floats, cap: Floats, room: Floats) -> Floats:
    """ρ of each site in forward order: at most `cap`, and Σ ρ of all later sites at most `room`.

    A layer feels the noise of every site that forward meets after it, so entry i of `room` limits
    the sum of ρ over the sites after i; inf where there is no layer. ρ grows in step with `weight`
    for all sites until a cap or a layer is reached, which then holds the sites concerned. With the
    numbers of elements as weights that is where -Σ weight·log ρ, the bits, is least: a site of
    twice the elements saves twice the bytes by the same factor of noise.
    """
    count = len(weight)
    rho, free = np.zeros(count), weight > 0
    while free.any():
        later = _after(np.where(free, weight, 0.0))
        left = np.maximum(room - _after(np.where(free, 0.0, rho)), 0.0)
        rate = np.divide(left, later, out=np.full(count, np.inf), where=later > 0)
        tightest = int(rate.argmin())
        capped = free.copy()
        capped[free] = cap[free] <= rate[tightest] * weight[free]
        if capped.any():
            rho[capped] = cap[capped]
            free &= ~capped
        elif np.isfinite(rate[tightest]):
            held = free & (np.arange(count) > tightest)
            rho[held] = rate[tightest] * weight[held]
            free &= ~held
        else:  # neither cap nor layer: as much as one likes
            rho[free] = np.inf
            break
    return rho


def _after(values: Floats) -> Floats:
    """Σ over all later entries."""
    total: Floats = values[::-1].cumsum()[::-1] - values
    return total
