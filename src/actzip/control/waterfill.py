"""Shares what layers tolerate of travelling noise among the sites that make it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROUNDS = 100  #: of the search for prices; what is not found by then costs some hundredths of a bit
_CHEAPEST = 1e-12  #: of the mean price: what reaches hardly any layer


def fill(weight: Floats, cap: Floats, room: Floats, reach: Floats) -> Floats:
    """ρ of each site: at most `cap`, and reach @ ρ at most `room`, such that Σ weight·log ρ is
    large and no ρ could be larger by itself.

    `reach` is (layers, sites): what a layer gets of a site's noise; `room` is inf for a layer
    that tolerates anything. With the numbers of elements as weights Σ weight·log ρ is the bits that
    are saved: a site of twice the elements saves twice the bytes by the same factor of noise.
    """
    limits = np.isfinite(room)
    room, reach = room[limits], reach[limits]
    limited = (reach > 0).any(0)
    rho, free = np.where(~limited & (weight > 0), cap, 0.0), limited & (weight > 0)
    toward = np.where(free, _fair(weight, cap, room, reach), 1.0)
    for _ in range(len(weight)):  # each round settles one site at least
        growth = reach @ np.where(free, toward, 0.0)
        left = np.maximum(room - weighted(reach, np.where(free, 0.0, rho)), 0.0)
        rate = np.divide(left, growth, out=np.full(len(room), np.inf), where=growth > 0)
        least = float(rate.min(initial=np.inf))
        capped = free & (cap <= least * toward)
        if capped.any():
            rho[capped] = cap[capped]
            free &= ~capped
        else:
            held = free & (reach[rate <= least] > 0).any(0)
            rho[held] = least * toward[held]
            free &= ~held
    return rho


def weighted(reach: Floats, rho: Floats) -> Floats:
    """reach @ rho, where a site that does not reach a layer may have infinite noise."""
    each: Floats = np.multiply(reach, rho, out=np.zeros_like(reach), where=reach > 0)
    total: Floats = each.sum(1)
    return total


def _fair(weight: Floats, cap: Floats, room: Floats, reach: Floats) -> Floats:
    """ρ that is nearly best: weight over the price of a site's noise in all layers it reaches.

    A layer's price rises in proportion to how far its room is exceeded and falls as far as it is
    not used, until both agree: the dual of a concave problem, as for shares of a network's links.
    """
    some = room > 0
    if not some.any() or not weight.any():
        return weight
    reach = reach / np.where(some, room, 1.0)[:, None]
    start = weight.sum() / some.sum()
    price = np.where(some, start, 0.0)
    closed = (reach[~some] > 0).any(0)  # a layer without room takes nothing of these
    for _ in range(_ROUNDS):
        cost = np.maximum(price @ reach, _CHEAPEST * start)
        rho = np.where(closed, 0.0, np.minimum(weight / cost, cap))
        price = price * (reach @ rho)
    return np.maximum(rho, _CHEAPEST * weight)
