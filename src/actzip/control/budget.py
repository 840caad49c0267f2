"""One budget of gradient noise for all stored tensors, spent where it saves most bytes.

Site i with the step tᵢ takes Bᵢ(tᵢ) bytes and puts E‖Δg‖² = A[l, i]·tᵢ²/12 into the gradients of
layer l. Sought are the steps with

    least Σ Bᵢ(tᵢ)   for   Σₗᵢ A[l, i]·tᵢ²/12 <= noise·V   and, for every layer l,
                           Σᵢ A[l, i]·tᵢ²/12 <= looser·noise·Vₗ,

V the variance that SGD's gradient has anyway and Vₗ a layer's part of it; or the least noise for
Σ Bᵢ within some bytes. With a price λ on the total and qₗ on each layer every site stands alone:
it takes the step with the least Bᵢ + tᵢ²/12·Σₗ max(λ, qₗ)·A[l, i]. λ is bisected, and the price of
a layer that has too much noise rises in proportion, because noise falls as one over its price.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from actzip.control.rate_curves import GRID

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

_ROUNDS = 24  #: of layers' prices
_HALVINGS = 50  #: of the interval for λ
_MATTERS = 0.02  #: of a layer's noise: a site with less is not what makes it too much
_SHIFT = 0.25  #: octaves by which all steps are moved in the end, to meet the target exactly


@dataclass(frozen=True)
class Problem:
    """What is known of all sites, and of all layers whose gradients they disturb."""

    elements: Floats  #: of each site
    bits: Floats  #: (sites, GRID) of an element at each step
    unit: Floats  #: size of each site: the step at GRID's 0
    coarsest: Floats  #: log2(t/size) that each site may have at most
    noise: Floats  #: A, (layers, sites): E‖Δg‖² for an error variance of 1
    variance: Floats  #: Vₗ of each layer; inf where there is no limit for it alone
    total: float  #: V

    def bytes_at(self, u: Floats) -> Floats:
        """Bᵢ at the steps 2^u in units of size."""
        place = np.clip((u - GRID[0]) / (GRID[1] - GRID[0]), 0, len(GRID) - 1)
        low = np.minimum(place.astype(np.intp), len(GRID) - 2)
        rows = np.arange(len(u))
        left, right = self.bits[rows, low], self.bits[rows, low + 1]
        found: Floats = self.elements / 8 * (left + (place - low) * (right - left))
        return found

    def squares(self, u: Floats) -> Floats:
        """t²/12: the error variance of each site's code."""
        found: Floats = (self.unit * 2.0**u) ** 2 / 12
        return found

    def layers_at(self, u: Floats) -> Floats:
        """E‖Δg‖² of each layer."""
        found: Floats = self.noise @ self.squares(u)
        return found

    def share(self, u: Floats) -> float:
        """E‖Δg‖² of all layers as a share of V."""
        return float(self.layers_at(u).sum()) / self.total


@dataclass(frozen=True)
class Plan:
    """Steps of all sites, and what is expected of them."""

    u: Floats  #: log2(t/size)
    bytes: float
    noise: float  #: share of V
    reached: bool  #: False: what was asked for cannot be had, this is the nearest


def least_bytes(problem: Problem, noise: float, looser: float = 4.0) -> Plan:
    """The fewest bytes for a share of the SGD variance, in total and for each layer."""
    plan = _solve(problem, lambda u: problem.share(u) <= noise, looser, noise)
    # at its coarsest codes a network may have less noise than is allowed: that is no failure
    return plan if plan.noise <= noise * (1 + 1e-6) else _replaced(plan, reached=False)


def least_noise(problem: Problem, nbytes: float, looser: float = 4.0) -> Plan:
    """The least noise for so many bytes; the coarsest codes if these take more."""

    def fine(u: Floats) -> bool:
        return bool(problem.bytes_at(u).sum() >= nbytes)

    plan = _solve(problem, fine, looser, None)
    return _replaced(plan, reached=plan.bytes <= nbytes * (1 + 1e-6))


def _replaced(plan: Plan, reached: bool) -> Plan:
    return Plan(plan.u, plan.bytes, plan.noise, reached)


def _solve(
    problem: Problem, is_fine: Callable[[Floats], bool], looser: float, noise: float | None
) -> Plan:
    """The coarsest steps along λ for which `is_fine` still holds, layers' limits kept.

    `noise`: the share that the limits go by; None: that of the steps that are found.
    """
    choose = _Chooser(problem)
    own = np.zeros(len(problem.variance))  # qₗ
    steps = np.zeros(len(problem.elements))
    for _ in range(_ROUNDS):
        price, steps = _bisect(choose, own, is_fine)
        share = problem.share(steps) if noise is None else noise
        over = problem.layers_at(steps) / np.maximum(looser * share * problem.variance, 1e-300)
        at = np.maximum(price, own)
        following = np.where((over > 1) | (own > price), at * np.clip(over, 0.05, 20.0) ** 0.8, 0.0)
        own, before = following, own
        if np.allclose(own, before, rtol=1e-3, atol=price * 1e-3):
            break
    steps = _shifted(problem, steps, is_fine)
    if noise is not None:
        steps = _clipped(problem, steps, looser * noise)
    return Plan(steps, float(problem.bytes_at(steps).sum()), problem.share(steps), True)


class _Chooser:
    """The best step of each site at given prices."""

    def __init__(self, problem: Problem):
        self._noise = problem.noise
        self._bytes = problem.elements[:, None] / 8 * problem.bits
        self._squares = (problem.unit[:, None] * 2.0 ** GRID[None, :]) ** 2 / 12
        self._bytes = np.where(
            GRID[None, :] > problem.coarsest[:, None] + 1e-9, np.inf, self._bytes
        )

    def __call__(self, prices: Floats) -> Floats:
        each = prices @ self._noise
        cost = self._bytes + each[:, None] * self._squares
        # the last of equal ones: where nothing is disturbed, the coarsest
        found: Floats = GRID[cost.shape[1] - 1 - cost[:, ::-1].argmin(axis=1)]
        return found


def _bisect(
    choose: _Chooser, own: Floats, is_fine: Callable[[Floats], bool]
) -> tuple[float, Floats]:
    """The least λ whose steps are fine, and these."""
    low, high = -300.0, 300.0  # log2 λ
    found = choose(np.maximum(2.0**high, own))
    coarse = choose(np.maximum(2.0**low, own))
    if is_fine(coarse):
        return 2.0**low, coarse
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        steps = choose(np.maximum(2.0**middle, own))
        if is_fine(steps):
            high, found = middle, steps
        else:
            low = middle
        if high - low < 1e-6:
            break
    return 2.0**high, found


def _shifted(problem: Problem, steps: Floats, is_fine: Callable[[Floats], bool]) -> Floats:
    """All steps coarser by one factor, as far as that is fine: the grid's steps leave a rest."""

    def moved(by: float) -> Floats:
        return np.maximum(steps, np.minimum(steps + by, problem.coarsest))

    low, high = 0.0, _SHIFT
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if is_fine(moved(middle)) else (low, middle)
    return moved(low)


def _clipped(problem: Problem, steps: Floats, limit: float) -> Floats:
    """Sites that disturb a layer too much made finer, by what the prices left over."""
    each = problem.noise * problem.squares(steps)
    layers = each.sum(axis=1)
    over = layers / np.maximum(limit * problem.variance, 1e-300)
    matters = each > _MATTERS * layers[:, None]
    worst = np.where(matters, over[:, None], 0.0).max(axis=0, initial=0.0)
    finer: Floats = np.maximum(steps - 0.5 * np.log2(np.maximum(worst, 1.0)), GRID[0])
    return finer
