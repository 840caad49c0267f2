"""One rung per item: least total value within a total weight (multiple-choice knapsack).

Three stages:

1. The steps of all convex hulls are sorted once by their price, value saved per weight, and taken
   while they fit: the base. λ, the price of the first that does not fit, gives a bound on every
   choice, what the base were worth if a part of that step could be had: value - λ·(weight left).
2. `spend`: what is left of the budget goes to later steps that still fit.
3. `search`: any choice is worth bound + Σ r + λ·(weight left), where r = Δvalue + λ·Δweight >= 0
   tells how far a rung is from what λ asks for. So only rungs with r below the gap between the
   bound and the best known can matter. They are few, and are searched exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from actzip.control.hull import Floats, Ints, Steps, hull_steps

#: Problems of at most this many items are solved exactly, while the search allows it; larger ones
#: until the best known is proven to be this near to the optimum, as a share of it.
FEW, NEAR = 256, 1e-5
#: The search is exact while it holds at most this many partial choices; after that it keeps so many
#: of the best, and ends when near.
STATES, BEAM = 20_000, 1_000
#: Rounding of sums: values nearer than this, as a share of the whole, count as equal.
ROUNDING = 1e-13


@dataclass(frozen=True)
class Moves:
    """Rungs that may replace the base of an item, those of one item next to each other."""

    item: Ints
    rung: Ints
    weight: Floats  #: against the base
    worse: Floats  #: r of the module's docstring


def choose(weight: Floats, value: Floats, budget: float) -> Ints:
    """A rung per item (rows; columns are rungs, inf is not allowed): Σ weight <= budget, Σ value
    least. Exact for `FEW` items while the search stays within `STATES`; else proven within `NEAR`,
    or, after an inexact search, the best found. The rungs of least weight must fit."""
    if not len(weight):
        return np.zeros(0, dtype=np.intp)
    steps = hull_steps(weight, value)
    for allowance in (ROUNDING, 0.0, -ROUNDING, -1e-10):
        # sums in another order differ in their last digits: be generous first, then check
        with np.errstate(over="ignore", invalid="ignore"):  # inf: out of reach, not allowed
            chosen = _solve(weight, value, budget + allowance * abs(budget), steps)
        if total(weight, chosen) <= budget:
            return chosen
    return steps.start


def total(table: Floats, chosen: Ints) -> float:
    return float(table[np.arange(len(chosen)), chosen].sum())


def _solve(weight: Floats, value: Floats, budget: float, steps: Steps) -> Ints:
    left = budget - total(weight, steps.start)
    order = np.argsort(-steps.price, kind="stable")
    taken = int(np.searchsorted(np.cumsum(steps.weight[order]), left, side="right"))
    base = climb(steps, order[:taken])
    if taken == len(order):
        return base
    left = budget - total(weight, base)
    extra = spend(steps, order[taken:], left)
    greedy = climb(steps, np.concatenate([order[:taken], extra]))
    price = float(steps.price[order[taken]])
    return search(weight, value, base, greedy, left, price)


def climb(steps: Steps, taken: Ints) -> Ints:
    """The rungs after these steps; an item's steps are taken from its first on."""
    count = np.bincount(steps.item[taken], minlength=len(steps.start))
    first = np.searchsorted(steps.item, np.arange(len(steps.start)))
    moved = count > 0
    chosen: Ints = steps.start.copy()
    chosen[moved] = steps.rung[(first + count - 1)[moved]]
    return chosen


def spend(steps: Steps, order: Ints, left: float) -> Ints:
    """Of the steps in this order, each that still fits when its turn comes."""
    taken: list[Ints] = []
    blocked = np.zeros(len(steps.start), dtype=bool)
    while len(order):
        small = steps.weight[order] <= left
        blocked[steps.item[order[~small]]] = True  # nothing beyond a step that was left out
        order = order[~blocked[steps.item[order]]]
        used = np.cumsum(steps.weight[order])
        fit = int(np.searchsorted(used, left, side="right"))
        taken.append(order[:fit])
        left -= float(used[fit - 1]) if fit else 0.0
        order = order[fit:]
    return np.concatenate([*taken, np.zeros(0, dtype=np.intp)])


def search(
    weight: Floats, value: Floats, base: Ints, known: Ints, left: float, price: float
) -> Ints:
    """The best choice, given one that is known; `base` is the best one for this price."""
    bound = total(value, base) - price * left
    gap = total(value, known) - bound
    near = NEAR * (bound + gap) if len(base) > FEW else 0.0
    if gap <= near:
        return known
    moves = useful_moves(weight, value, base, price, gap)
    chosen = Hunt(moves, left, price, gap, bound, near).run()
    if chosen is None:
        return known
    better: Ints = base.copy()
    better[moves.item[chosen]] = moves.rung[chosen]
    return better


def useful_moves(weight: Floats, value: Floats, base: Ints, price: float, gap: float) -> Moves:
    """All moves that a choice better than the known one may hold, the items nearest to the price
    first."""
    at = np.arange(len(base))
    dw = weight - weight[at, base][:, None]
    dv = value - value[at, base][:, None]
    worse = np.maximum(dv + price * dw, 0.0)
    item, rung = np.nonzero((worse < gap) & ((dw < 0) | (dv < 0)) & (dw < np.inf))
    dw, worse = dw[item, rung], worse[item, rung]
    near = np.full(len(base), np.inf)
    np.minimum.at(near, item, distance(dw, worse))
    order = np.lexsort((item, near[item]))
    return Moves(item[order], rung[order], dw[order], worse[order])


def distance(weight: Floats, worse: Floats) -> Floats:
    """Of a move's own price from λ."""
    size = np.abs(weight)
    return np.divide(worse, size, out=np.zeros_like(worse), where=size > 0)


class Hunt:
    """Dynamic programming over the moves, item by item.

    A state is a partial choice: weight added to the base and Σ r. It is dropped when another has
    no more of weight and value, or when even the best prices of the items to come cannot bring it
    below the best choice known.
    """

    def __init__(
        self, moves: Moves, left: float, price: float, gap: float, bound: float, near: float
    ) -> None:
        self.moves, self.left, self.price = moves, left, price
        self.best, self.bound, self.near = gap, bound, near
        self.equal = ROUNDING * (abs(bound) + gap)
        self.found: tuple[int, int, int] | None = None  #: stage, parent, move of the best
        self.weight, self.worse = np.zeros(1), np.zeros(1)
        self.trail: list[tuple[Ints, Ints]] = []  #: per stage: parent and move (-1: none) of states
        self.limit, self.lost = STATES, np.inf

    def run(self) -> Ints | None:
        """The moves of the best choice; None when none is better than the known one."""
        ends = np.flatnonzero(np.diff(self.moves.item, append=-1)) + 1
        up, down = self._prices_ahead(ends)
        begin = 0
        for stage, end in enumerate(ends.tolist()):
            floor = self._stage(begin, end, up[stage + 1], down[stage + 1])
            begin = end
            if not len(self.weight) or self.best - min(floor, self.lost) <= self.near:
                break
        return self._trace()

    def _prices_ahead(self, ends: Ints) -> tuple[Floats, Floats]:
        """Least distance from λ of the moves that come at a stage or later, up and down."""
        away = distance(self.moves.weight, self.moves.worse)
        nearest = []
        for there in (self.moves.weight >= 0, self.moves.weight <= 0):
            each = np.append(np.where(there, away, np.inf), np.inf)
            ahead = np.minimum.accumulate(each[::-1])[::-1]
            nearest.append(ahead[np.append(0, ends)])
        return nearest[0], nearest[1]

    def _stage(self, begin: int, end: int, up: float, down: float) -> float:
        """Every state with every move of one item, or none; gives the least bound of the rest."""
        options = np.arange(begin - 1, end)
        added, worse = self.moves.weight[begin:end], self.moves.worse[begin:end]
        w = np.concatenate([self.weight, np.add.outer(added, self.weight).ravel()])
        r = np.concatenate([self.worse, np.add.outer(worse, self.worse).ravel()])
        move = np.repeat(options, len(self.weight))
        move[: len(self.weight)] = -1
        parent = np.tile(np.arange(len(self.weight)), len(options))
        left = self.left - w
        self._record(r + self.price * left, left >= 0, parent, move)
        reach = r + np.where(left >= 0, min(self.price, up) * left, down * -left)
        keep = np.flatnonzero(reach < self.best - self.equal)
        keep = keep[self._undominated(w[keep], r[keep])]
        keep = self._within_limit(keep, reach, np.abs(left))
        self.weight, self.worse = w[keep], r[keep]
        self.trail.append((parent[keep], move[keep]))
        return float(reach[keep].min(initial=np.inf))

    def _record(self, worth: Floats, fits: NDArray[np.bool_], parent: Ints, move: Ints) -> None:
        """Remembers the best of the states as complete choices."""
        at = int(np.where(fits, worth, np.inf).argmin())
        if fits[at] and worth[at] < self.best - self.equal:
            self.best = float(worth[at])
            self.found = (len(self.trail), int(parent[at]), int(move[at]))

    def _undominated(self, w: Floats, r: Floats) -> Ints:
        """States by weight, without those that another one equals or beats."""
        order = np.lexsort((r, w))
        value = (r - self.price * w)[order]
        before = np.append(np.inf, np.minimum.accumulate(value)[:-1])
        return order[value < before - self.equal]

    def _within_limit(self, keep: Ints, reach: Floats, left: Floats) -> Ints:
        if len(keep) <= self.limit:
            return keep
        self.limit, self.near = BEAM, NEAR * (self.bound + self.best)
        order = np.lexsort((left[keep], reach[keep]))
        self.lost = min(self.lost, float(reach[keep[order[BEAM]]]))
        return np.sort(keep[order[:BEAM]])

    def _trace(self) -> Ints | None:
        if self.found is None:
            return None
        stage, state, move = self.found
        moves = [move]
        for parents, taken in reversed(self.trail[:stage]):
            moves.append(int(taken[state]))
            state = int(parents[state])
        return np.array([m for m in moves if m >= 0], dtype=np.intp)
