"""Shares what layers tolerate of travelling noise among the sites that make it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROUNDS = 100  #: of the search for prices; what is not found by then costs some hundredths of a bit
_CHEAPEST = 1e-12  #: of the mean price: what reaches hardly any layer


def fill(
    weight: Floats, cap: Floats, room: Floats, reach: Floats, toward: Floats | None = None
) -> Floats:
    """ρ of each site: at most `cap`, and reach @ ρ at most `room`, such that Σ weight·log ρ is
    large and no ρ could be larger by itself.

    `reach` is (layers, sites): what a layer gets of a site's noise; `room` is inf for a layer
    that tolerates anything. With the numbers of elements as weights Σ weight·log ρ is the bits that
    are saved: a site of twice the elements saves twice the bytes by the same factor of noise.
    `toward` is `fair` of the same, where that is known.
    """
    if toward is None:
        toward = fair(weight, cap[None], room[None], reach)[0]
    limits = np.isfinite(room)
    room, reach = room[limits], reach[limits]
    reaches, spent = reach > 0, np.zeros(len(room))  # by sites that are settled
    limited = reaches.any(0)
    rho, free = np.where(~limited & (weight > 0), cap, 0.0), limited & (weight > 0)
    toward = np.where(free, toward, 1.0)
    for _ in range(len(weight)):  # each round settles one site at least
        if not free.any():
            break
        growth = reach @ np.where(free, toward, 0.0)
        left = np.maximum(room - spent, 0.0)
        rate = np.divide(left, growth, out=np.full(len(room), np.inf), where=growth > 0)
        least = float(rate.min(initial=np.inf))
        capped = free & (cap <= least * toward)
        settled = capped if capped.any() else free & reaches[rate <= least].any(0)
        rho[settled] = cap[settled] if settled is capped else least * toward[settled]
        free &= ~settled
        spent += weighted(reach[:, settled], rho[settled])
    return rho


def weighted(reach: Floats, rho: Floats) -> Floats:
    """reach @ rho, where a site that does not reach a layer may have infinite noise."""
    each: Floats = np.multiply(reach, rho, out=np.zeros_like(reach), where=reach > 0)
    total: Floats = each.sum(1)
    return total


def fair(weight: Floats, caps: Floats, rooms: Floats, reach: Floats) -> Floats:
    """ρ that is nearly best: weight over the price of a site's noise in all layers it reaches.
    Of several problems at once, a row each, whose caps and rooms differ.

    A layer's price rises in proportion to how far its room is exceeded and falls as far as it is
    not used, until both agree: the dual of a concave problem, as for shares of a network's links.
    """
    some = np.isfinite(rooms) & (rooms > 0)
    parts = np.divide(1.0, rooms, out=np.zeros_like(rooms), where=some)
    start = weight.sum() / np.maximum(1, some.sum(1, keepdims=True))
    price = np.where(some, start, 0.0)
    # a layer without room takes nothing of these
    closed = (rooms == 0) @ (reach > 0).astype(np.float64) > 0
    turned = np.ascontiguousarray(reach.T)
    for _ in range(_ROUNDS):
        cost = np.maximum((price * parts) @ reach, _CHEAPEST * start)
        rho = np.where(closed, 0.0, np.minimum(_over(weight, cost), caps))
        price = price * parts * (rho @ turned)
    found = np.maximum(rho, _CHEAPEST * weight)
    return np.where(some.any(1, keepdims=True) & weight.any(), found, weight)


def _over(weight: Floats, cost: Floats) -> Floats:
    """weight/cost, and 0 of a site without weight, whose noise may cost nothing."""
    return np.divide(weight, cost, out=np.zeros_like(cost), where=cost > 0)
