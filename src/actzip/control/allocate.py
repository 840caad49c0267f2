"""Spends a budget: which rung of its ladder each item gets.

An item is a site, or a sample of a site; its ladder is a list of codes with a cost (bits or bytes)
and a predicted gradient error each.

    cost, error = bits_ladder(sensitivity, elements)
    bits = 1 + least_error(cost, error, budget=2.0 * elements.sum())
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from actzip.control import knapsack
from actzip.control.hull import Floats, Ints


def least_error(cost: ArrayLike, error: ArrayLike, budget: float) -> Ints:
    """The rung of each item, such that Σ cost <= budget, always, and Σ error is least.

    cost and error are (items, rungs); inf marks a rung that is not allowed, each item needs one
    that is. Small problems are solved exactly, large ones to within 0.1 % of the optimum (see
    `knapsack.choose`). The same input gives the same rungs; of equal items the first get more.
    """
    costs, errors = _ladders(cost, error)
    need = float(costs.min(axis=1, initial=np.inf).sum())
    if not need <= budget:
        raise ValueError(
            f"least_error was given a budget of {budget:g}, but the cheapest allowed rungs of the "
            f"{len(costs)} items cost {need:g} together; raise the budget to that or allow "
            "cheaper rungs"
        )
    return knapsack.choose(costs, errors, budget)


def bits_ladder(
    sensitivity: ArrayLike,
    elements: ArrayLike,
    lowest: int = 1,
    highest: int = 8,
    zero: bool | NDArray[np.bool_] = False,
) -> tuple[Floats, Floats]:
    """(cost, error) of codes of `lowest` to `highest` bits, each (items, highest - lowest + 1).

    cost = elements·b and error = C/(2^b - 1)², C the sensitivity. zero, for all or one per item,
    means codes that keep a code for zeros: error = C/(2^b - 2)², and a single bit is not allowed,
    since it has no step left and is biased.
    """
    c, n = _sensitivities(sensitivity), np.asarray(elements, dtype=np.float64)
    if n.shape != c.shape or not (np.isfinite(n).all() and (n >= 0).all()):
        raise ValueError(
            f"bits_ladder needs the number of elements of each of the {len(c)} items, got an array "
            f"of shape {n.shape}" + ("" if n.shape != c.shape else " with negative or NaN entries")
        )
    plain, aware = _errors(lowest, highest, False), _errors(lowest, highest, True)
    unit = np.where(np.broadcast_to(zero, c.shape)[:, None], aware, plain)
    with np.errstate(invalid="ignore"):
        error = np.where(np.isinf(unit), np.inf, c[:, None] * unit)
    return np.multiply.outer(n, np.arange(lowest, highest + 1.0)), error


def split(
    sensitivity: ArrayLike, budget: float, lowest: int = 1, highest: int = 8, zero: bool = False
) -> Ints:
    """Bits of each item for items of equal size: Σ bits <= budget, Σ C/(2^b - 1)² least, exactly.

    For the samples of one site in each forward: it is `least_error` of `bits_ladder`, where equal
    costs leave nothing to search, as the budget's best steps. Items without sensitivity stay
    lowest. zero as in `bits_ladder`.
    """
    c = _sensitivities(sensitivity)
    first, gain = _gains(lowest, highest, zero)
    spare = budget - first * len(c)
    if not spare >= 0:
        raise ValueError(
            f"split was given {budget:g} bits for {len(c)} items of at least {first} bits; raise "
            f"the budget to {first * len(c)}" + (" or allow fewer bits" if first > 1 else "")
        )
    steps = np.multiply.outer(gain, c)  # by bits, then items: they fall along the bits
    count = int(min(spare, steps.size))
    price = np.partition(steps, steps.size - count, axis=None)[-count] if count else np.inf
    bits: Ints = first + np.count_nonzero(steps > price, axis=0)
    if 0 < price < np.inf:
        tied = np.flatnonzero(steps == price)[: count + first * len(c) - int(bits.sum())]
        np.add.at(bits, tied % len(c), 1)  # an item may be tied with itself
    return bits


@lru_cache
def _errors(lowest: int, highest: int, zero: bool) -> Floats:
    """Error of a code of each number of bits, for a sensitivity of 1."""
    if not 1 <= lowest <= highest <= 32 or (zero and highest < 2):
        raise ValueError(
            f"bits are 1 to 32, and at least 2 where zero has a code of its own, got lowest="
            f"{lowest}, highest={highest}, zero={zero}"
        )
    levels = 2.0 ** np.arange(lowest, highest + 1) - (2 if zero else 1)
    return np.array([float(n) ** -2 if n else np.inf for n in levels])


@lru_cache
def _gains(lowest: int, highest: int, zero: bool) -> tuple[int, Floats]:
    """The fewest bits that are allowed, and what each further bit takes from the error."""
    errors = _errors(lowest, highest, zero)
    barred = int(np.isinf(errors).sum())
    return lowest + barred, -np.diff(errors[barred:])


def _sensitivities(given: ArrayLike) -> Floats:
    c = np.asarray(given, dtype=np.float64)
    if c.ndim != 1:
        raise ValueError(f"sensitivities are one number per item, got an array of shape {c.shape}")
    if len(c) and not (c.min() >= 0 and c.max() < np.inf):
        wrong = np.flatnonzero(~((c >= 0) & (c < np.inf)))
        raise ValueError(
            f"sensitivities are finite and not negative, got {c[wrong[0]]} for item {wrong[0]} "
            f"({len(wrong)} of {len(c)} are wrong); after an overflow keep the last allocation"
        )
    return c


def _ladders(cost: ArrayLike, error: ArrayLike) -> tuple[Floats, Floats]:
    """Both as float64, checked; a rung that one of them bars is inf in both."""
    c, e = np.asarray(cost, dtype=np.float64), np.asarray(error, dtype=np.float64)
    if c.ndim != 2 or c.shape != e.shape:
        raise ValueError(
            f"cost and error are both (items, rungs), got shapes {c.shape} and {e.shape}"
        )
    for name, table in (("cost", c), ("error", e)):
        wrong = np.argwhere(~(table >= 0))
        if len(wrong):
            item, rung = wrong[0]
            raise ValueError(
                f"{name}s are not negative and not NaN, got {table[item, rung]} for rung {rung} of "
                f"item {item}; mark a rung that is not allowed with inf"
            )
    barred = np.isinf(c) | np.isinf(e)
    without = np.flatnonzero(barred.all(axis=1))
    if len(without):
        raise ValueError(
            f"each item needs a rung that is allowed, item {without[0]} has none "
            f"({len(without)} of {len(c)} items); give it a finite cost and error"
        )
    if barred.any():
        c, e = np.where(barred, np.inf, c), np.where(barred, np.inf, e)
    return c, e
