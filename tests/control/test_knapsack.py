"""The solver on problems too large for brute force, against HiGHS; and its convex hulls."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse  # type: ignore[import-untyped]
from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]

from actzip.control import knapsack
from actzip.control.allocate import bits_ladder, least_error
from actzip.control.hull import Floats, hull_steps

WITHIN = 1.001


def lower_bound(weight: Floats, value: Floats, budget: float, known: float) -> float:
    """What HiGHS proves that no choice can be below; `known` only scales its tolerances."""
    item, rung = np.nonzero(np.isfinite(weight) & np.isfinite(value))
    count = len(item)
    one = sparse.csr_array((np.ones(count), (item, np.arange(count))), shape=(len(weight), count))
    result = milp(
        value[item, rung] / known,
        constraints=[
            LinearConstraint(one, 1, 1),
            LinearConstraint(weight[item, rung][None] / budget, -np.inf, 1),
        ],
        integrality=np.ones(count),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 5e-4, "time_limit": 30},
    )
    return float(result.mip_dual_bound) * known


def network(
    seed: int, samples: int = 1, powers: bool = False, zero: bool = False
) -> tuple[Floats, Floats]:
    """160 layers with sizes over four decades and sensitivities over eight, cut into samples."""
    rng = np.random.default_rng(seed)
    drawn = 10 ** rng.uniform(3, 7, 160)
    sizes: Floats = np.exp2(np.round(np.log2(drawn))) if powers else np.round(drawn)
    sensitivity = np.repeat(sizes * 10 ** rng.uniform(-6, 2, 160), samples)
    if samples > 1:
        sensitivity *= rng.lognormal(0, 1, len(sensitivity))
    return bits_ladder(sensitivity, np.repeat(sizes, samples), zero=zero)


def check_both(cost: Floats, error: Floats, bits: float) -> None:
    budget = bits * float(cost[:, 0].sum())
    chosen = least_error(cost, error, budget)
    least = knapsack.total(error, chosen)
    assert knapsack.total(cost, chosen) <= budget
    assert least <= WITHIN * lower_bound(cost, error, budget, least)
    allowed = 1.05 * least
    chosen = knapsack.choose(error, cost, allowed)  # the same problem with the two exchanged
    cheapest = knapsack.total(cost, chosen)
    assert knapsack.total(error, chosen) <= allowed
    assert cheapest <= WITHIN * lower_bound(error, cost, allowed, cheapest)


@pytest.mark.parametrize("bits", [1.25, 1.5, 2, 3])
@pytest.mark.parametrize("powers", [False, True])
def test_160_layers_are_within_a_thousandth_of_the_optimum(bits: float, powers: bool) -> None:
    check_both(*network(int(4 * bits), powers=powers), bits)


def test_zero_aware_codes_too() -> None:
    check_both(*network(9, zero=True), bits=3)


def test_160_layers_by_32_samples_are_within_a_thousandth_of_the_optimum() -> None:
    check_both(*network(5, samples=32), bits=2)


def by_tables(weight: Floats, value: Floats, budget: int) -> float:
    """The exact optimum for whole weights: the least value for each total weight, item by item."""
    least = np.zeros(budget + 1)
    for w, v in zip(weight.astype(int), value, strict=True):
        grown = np.full(budget + 1, np.inf)
        for added, worth in zip(w, v, strict=True):
            grown[added:] = np.minimum(grown[added:], least[: budget + 1 - added] + worth)
        least = grown
    return float(least[budget])


@pytest.mark.parametrize("convex", [False, True])
def test_60_items_of_whole_weights_are_solved_exactly(convex: bool) -> None:
    rng = np.random.default_rng(8)
    for _ in range(40):
        sizes = rng.integers(1, 40, 60).astype(np.float64)
        cost, error = bits_ladder(rng.lognormal(0, 2, 60) * sizes, sizes)
        if not convex:
            error = -np.sort(-rng.random(cost.shape)) * sizes[:, None]
        budget = int(rng.uniform(1.1, 6) * sizes.sum())
        chosen = least_error(cost, error, budget)
        assert knapsack.total(cost, chosen) <= budget
        exact = by_tables(cost, error, budget)
        assert knapsack.total(error, chosen) == pytest.approx(exact, rel=1e-10)


def test_a_search_cut_short_is_still_within_a_thousandth(monkeypatch: pytest.MonkeyPatch) -> None:
    cost, error = network(6)
    budget = 1.5 * float(cost[:, 0].sum())
    exact = knapsack.total(error, least_error(cost, error, budget))
    monkeypatch.setattr(knapsack, "STATES", 30)
    monkeypatch.setattr(knapsack, "BEAM", 20)
    cut = least_error(cost, error, budget)
    assert knapsack.total(cost, cut) <= budget
    assert exact <= knapsack.total(error, cut) <= WITHIN * exact


def test_ladders_whose_every_choice_costs_the_same_per_error_end_soon() -> None:
    """Without convexity nothing can be ruled out: the search must stop by itself."""
    rng = np.random.default_rng(0)
    cost = np.cumsum(rng.random((60, 6)) * 10 ** rng.uniform(0, 3, (60, 1)), axis=1)
    error = cost.max() - cost
    budget = float(cost.mean(axis=1).sum())
    chosen = least_error(cost, error, budget)
    unspent = budget - knapsack.total(cost, chosen)
    assert 0 <= unspent <= 1e-4 * budget


def slow_hull(weight: Floats, value: Floats) -> list[int]:
    """One ladder's hull from its definition: rungs that are best at some price, by weight."""
    allowed = [j for j in range(len(weight)) if np.isfinite(weight[j] + value[j])]
    slopes = [
        (value[i] - value[j]) / (weight[j] - weight[i])
        for i in allowed
        for j in allowed
        if weight[j] > weight[i] and value[j] < value[i]
    ]
    edges = np.unique([0.0, *slopes])
    prices = np.append((edges[1:] + edges[:-1]) / 2, edges[-1] + 1)
    best = {min(allowed, key=lambda j: (value[j] + p * weight[j], weight[j])) for p in prices}
    return sorted(best, key=lambda j: weight[j])


def test_hulls_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(2)
    for turn in range(300):
        weight, value = rng.random((4, 6)), rng.random((4, 6))
        if turn % 3:
            weight = np.sort(weight)
            value = 1 / (weight + 0.01) if turn % 3 == 1 else -np.sort(-value)
        value[:, 1:][rng.random((4, 5)) < 0.2] = np.inf
        if turn % 2:
            weight, value = value, weight
        steps = hull_steps(weight, value)
        for item in range(4):
            rungs = [int(steps.start[item]), *steps.rung[steps.item == item].tolist()]
            assert rungs == slow_hull(weight[item], value[item])
