"""Lower convex hulls of many ladders at once, as steps from the lightest rung on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Steps:
    """Steps along the hulls, those of one item in order and next to each other."""

    start: Ints  #: of each item: the rung of least weight
    item: Ints
    rung: Ints  #: where the step leads
    weight: Floats  #: added, > 0
    price: Floats  #: value saved per weight, finite, not increasing within an item


def hull_steps(weight: Floats, value: Floats) -> Steps:
    """The hulls of ladders (items, rungs), by weight and value; inf marks a rung to leave out."""
    backwards = bool(weight.size) and bool(weight[0, 0] > weight[0, -1])
    if backwards:
        weight, value = weight[:, ::-1], value[:, ::-1]
    start, added, price, regular = _adjacent(weight, value)
    item, rung = np.nonzero(added > 0)
    parts = [(item, rung + 1, added[item, rung], price[item, rung])]
    odd = np.flatnonzero(~regular)
    if len(odd):
        start[odd], walked = _walk(weight, value, odd)
        parts += walked
    item, rung, added, price = (np.concatenate(part) for part in zip(*parts, strict=True))
    if len(odd):
        order = np.argsort(item, kind="stable")
        item, rung, added, price = item[order], rung[order], added[order], price[order]
    if backwards:
        start, rung = weight.shape[1] - 1 - start, weight.shape[1] - 1 - rung
    return Steps(start, item, rung, added, price)


def _adjacent(weight: Floats, value: Floats) -> tuple[Ints, Floats, Floats, NDArray[np.bool_]]:
    """Start, steps to the next rung (weight 0 where there is none) and whether these are the hull:
    for ladders that are sorted and convex, with rungs left out at the ends only."""
    allowed = np.isfinite(weight) & np.isfinite(value)
    pair = allowed[:, 1:] & allowed[:, :-1]
    added, price = np.zeros(pair.shape), np.zeros(pair.shape)
    np.subtract(weight[:, 1:], weight[:, :-1], out=added, where=pair)
    np.subtract(value[:, :-1], value[:, 1:], out=price, where=pair)
    falls = ((added > 0) & (price > 0)) == pair
    with np.errstate(over="ignore"):
        np.divide(price, added, out=price, where=pair & falls)
    np.minimum(price, _LARGEST, out=price)
    convex = (price[:, 1:] <= price[:, :-1]) | ~(pair[:, 1:] & pair[:, :-1])
    whole = np.count_nonzero(pair, axis=1) == np.count_nonzero(allowed, axis=1) - 1
    regular = falls.all(axis=1) & convex.all(axis=1) & whole
    added[~regular] = 0.0
    return allowed.argmax(axis=1), added, price, regular


def _walk(
    weight: Floats, value: Floats, rows: Ints
) -> tuple[Ints, list[tuple[Ints, Ints, Floats, Floats]]]:
    """Starts and steps of any ladders: from the lightest rung to the one with the best price, and
    on from there, all rows abreast."""
    weight, value = weight[rows], value[rows]
    weight = np.where(np.isinf(value), np.inf, weight)
    lightest = weight == weight.min(axis=1, keepdims=True)
    start = here = np.where(lightest, value, np.inf).argmin(axis=1)
    last = np.full(len(rows), _LARGEST)
    steps: list[tuple[Ints, Ints, Floats, Floats]] = []
    while len(rows):
        at = np.arange(len(rows))
        with np.errstate(all="ignore"):
            dw, dv = weight - weight[at, here][:, None], value[at, here][:, None] - value
            price = np.where((dw > 0) & (dv > 0) & (dw < np.inf), dv / dw, -1.0)
        best = price.max(axis=1)
        # of equal prices the shortest step: it fits more often
        there = np.where(price == best[:, None], dw, np.inf).argmin(axis=1)
        go = best >= 0
        added, last = dw[at, there][go], np.minimum(best, last)[go]
        rows, here, weight, value = rows[go], there[go], weight[go], value[go]
        steps.append((rows, here, added, last))
    return start, steps
