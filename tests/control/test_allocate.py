"""The allocation: equal to brute force, never over its budget, clear about what it cannot do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actzip.control.allocate import bits_ladder, least_error, split
from actzip.control.hull import Floats, Ints


def total(table: Floats, chosen: Ints) -> float:
    return float(table[np.arange(len(table)), chosen].sum())


def brute_force(weight: Floats, value: Floats, budget: float) -> float:
    """Least Σ value over every combination with Σ weight <= budget.

    It sums in another order than the solver: the last digits of the budget are left out.
    """
    weights, values = np.zeros(1), np.zeros(1)
    for w, v in zip(weight, value, strict=True):
        allowed = np.isfinite(w) & np.isfinite(v)
        weights = np.add.outer(weights, w[allowed]).ravel()
        values = np.add.outer(values, v[allowed]).ravel()
    return float(values[weights <= max(budget * (1 - 1e-12), weights.min())].min())


def check(cost: Floats, error: Floats, share: float) -> None:
    """Against brute force, the budget this share of the way from least to most."""
    barred = np.isinf(error)
    low = np.where(barred, np.inf, cost).min(axis=1).sum()
    high = np.where(barred, -np.inf, cost).max(axis=1).sum()
    budget = float(low + share * (high - low))
    chosen = least_error(cost, error, budget)
    assert not barred[np.arange(len(cost)), chosen].any()
    assert total(cost, chosen) <= budget
    best = brute_force(cost, error, budget)
    assert total(error, chosen) <= best * (1 + 1e-9)


def random_ladders(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Unequal sizes over four decades, ladders that are not convex, some rungs not allowed."""
    shape = (int(rng.integers(1, 7)), int(rng.integers(1, 6)))
    cost = np.cumsum(rng.integers(1, 9, shape), axis=1) * 10.0 ** rng.integers(0, 4, (shape[0], 1))
    if rng.random() < 0.5:
        cost = cost * rng.random((shape[0], 1))
    error = -np.sort(-rng.random(shape)) * 10.0 ** rng.integers(-3, 3, (shape[0], 1))
    if rng.random() < 0.3:
        error = np.ceil(10 * error)  # ties
    if rng.random() < 0.5:
        barred = rng.random(shape) < 0.3
        barred[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] = False
        error[barred] = np.inf
    return cost, error


@pytest.mark.parametrize("seed", range(8))
def test_equals_brute_force_on_random_ladders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(250):
        check(*random_ladders(rng), share=rng.random())


@st.composite
def whole_ladders(draw: st.DrawFn) -> tuple[Floats, Floats]:
    items, rungs = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    numbers = st.lists(st.integers(0, 12), min_size=items * rungs, max_size=items * rungs)
    cost = np.array(draw(numbers), dtype=np.float64).reshape(items, rungs)
    error = np.array(draw(numbers), dtype=np.float64).reshape(items, rungs)
    barred = np.array(draw(numbers)).reshape(items, rungs) == 0
    barred[:, 0] = False
    error[barred] = np.inf
    return cost, error


@settings(max_examples=1000, deadline=None)
@given(whole_ladders(), st.floats(0, 1))
def test_equals_brute_force_on_unsorted_ladders_of_small_numbers(
    ladders: tuple[Floats, Floats], share: float
) -> None:
    check(*ladders, share=share)


SIZES = st.integers(1, 4096)
SENSITIVITIES = st.just(0.0) | st.floats(1e-3, 1e6)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(SENSITIVITIES, SIZES), min_size=1, max_size=4),
    st.booleans(),
    st.floats(0, 1),
)
def test_equals_brute_force_on_bits(
    items: list[tuple[float, int]], zero: bool, share: float
) -> None:
    cost, error = bits_ladder([c for c, _ in items], [n for _, n in items], zero=zero)
    check(cost, error, share)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e290), SIZES), min_size=1, max_size=8), st.floats(0, 1))
def test_numbers_of_any_size_keep_the_budget(items: list[tuple[float, int]], share: float) -> None:
    cost, error = bits_ladder([c for c, _ in items], [n for _, n in items])
    budget = float(cost.min(axis=1).sum() * (1 - share) + cost.max(axis=1).sum() * share)
    budget = max(budget, float(cost.min(axis=1).sum()))
    assert total(cost, least_error(cost, error, budget)) <= budget


@pytest.mark.parametrize("bits", [1.25, 1.5, 2, 3])
def test_a_fractional_average_is_never_exceeded_and_nearly_used_up(bits: float) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        elements = np.round(10 ** rng.uniform(2, 6, 40))
        cost, error = bits_ladder(rng.lognormal(0, 3, 40) * elements, elements)
        budget = bits * elements.sum()
        used = total(cost, least_error(cost, error, budget))
        assert budget - elements.min() < used <= budget


@pytest.mark.parametrize("seed", range(2))
def test_more_budget_is_never_worse(seed: int) -> None:
    rng = np.random.default_rng(seed)
    elements = np.round(10 ** rng.uniform(2, 6, 30))
    cost, error = bits_ladder(rng.lognormal(0, 3, 30) * elements, elements)
    bits = np.linspace(1, 8.1, 60) * elements.sum()
    errors = [total(error, least_error(cost, error, budget)) for budget in bits]
    assert (np.diff(errors) <= 1e-12 * errors[0]).all()
    assert errors[-1] == error.min(axis=1).sum()


def test_items_without_sensitivity_get_the_cheapest_rung() -> None:
    cost, error = bits_ladder([0.0, 3.0, 0.0], [10, 10, 10])
    assert least_error(cost, error, 1e9).tolist() == [0, 7, 0]
    assert split([0.0, 3.0, 0.0], 99).tolist() == [1, 8, 1]


def test_of_equal_items_the_first_get_more_and_twice_gives_the_same() -> None:
    cost, error = bits_ladder(np.ones(5), np.full(5, 8))
    assert least_error(cost, error, 8 * 7).tolist() == [1, 1, 0, 0, 0]
    assert split(np.ones(5), 7).tolist() == [2, 2, 1, 1, 1]
    cost, error = bits_ladder(np.random.default_rng(3).lognormal(0, 2, 50), np.arange(50))
    chosen = [least_error(cost, error, 3000.0).tolist() for _ in range(2)]
    assert chosen[0] == chosen[1]


def test_no_items_and_one_item() -> None:
    none = np.zeros((0, 4))
    assert least_error(none, none, 0).tolist() == []
    assert split([], 3).tolist() == []
    assert bits_ladder([], [])[0].shape == (0, 8)
    cost, error = np.array([[2.0, 4, 6]]), np.array([[np.inf, 1, 0]])
    assert least_error(cost, error, 5).tolist() == [1]
    assert least_error(cost, error, np.inf).tolist() == [2]


def test_the_ladder_of_bits_is_actnns() -> None:
    cost, error = bits_ladder([9.0, 36.0], [100, 10], lowest=1, highest=3, zero=np.array([0, 1]))
    assert cost.tolist() == [[100, 200, 300], [10, 20, 30]]
    np.testing.assert_allclose(error, [[9, 1, 9 / 49], [np.inf, 9, 1]], rtol=1e-15)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.floats(0, 1e9) | st.sampled_from([0.0, 1.0, 4.0]), min_size=1, max_size=12),
    st.floats(0, 8),
    st.integers(1, 3),
    st.integers(3, 8),
    st.booleans(),
)
def test_split_is_least_error_for_equal_sizes(
    sensitivity: list[float], more: float, lowest: int, highest: int, zero: bool
) -> None:
    cost, error = bits_ladder(sensitivity, np.ones(len(sensitivity)), lowest, highest, zero)
    budget = (max(lowest, 1 + zero) + more) * len(sensitivity)
    bits = split(sensitivity, budget, lowest, highest, zero)
    assert bits.sum() <= budget
    assert bits.max() <= highest
    best = total(error, least_error(cost, error, budget))
    assert total(error, bits - lowest) == pytest.approx(best, rel=1e-9, abs=1e-300)


LADDER = np.array([[1.0, 2], [1, 2]])


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda: least_error(LADDER, LADDER, 1.5), r"budget of 1\.5.*cost 2 together; raise"),
        (lambda: least_error(LADDER, LADDER, np.nan), "budget of nan"),
        (lambda: least_error(LADDER, LADDER[:1], 5), r"shapes \(2, 2\) and \(1, 2\)"),
        (
            lambda: least_error(LADDER * np.nan, LADDER, 5),
            "costs are .* got nan for rung 0 of item 0",
        ),
        (lambda: least_error(LADDER, -LADDER, 5), "errors are not negative .* got -1"),
        (lambda: least_error(LADDER, LADDER * np.inf, 5), "item 0 has none .2 of 2 items"),
        (lambda: bits_ladder([1.0], [1, 2]), r"each of the 1 items, got .* shape \(2,\)"),
        (lambda: bits_ladder([1.0], [-1]), "negative or NaN"),
        (lambda: bits_ladder([[1.0]], [1]), r"one number per item, got an array of shape \(1, 1\)"),
        (lambda: bits_ladder([1.0], [1], 3, 2), "lowest=3, highest=2"),
        (lambda: split([1.0, np.nan], 4), r"got nan for item 1 .1 of 2"),
        (lambda: split([1.0, np.inf], 4), "got inf for item 1"),
        (lambda: split([1.0, -2.0], 4), r"got -2\.0 for item 1"),
        (lambda: split([1.0, 2.0], 3, zero=True), "3 bits for 2 items of at least 2 bits.* to 4"),
        (lambda: split([1.0, 2.0], np.nan), "nan bits"),
    ],
)
def test_errors_say_what_came_and_what_to_do(act: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        act()
