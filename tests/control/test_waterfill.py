"""Noise is shared among sites: no layer gets too much, nothing is left over, few bits are lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actzip.control.waterfill import Floats, fill, weighted


def _chain(count: int) -> Floats:
    """Every layer gets the noise of all sites after it as it is."""
    return np.triu(np.ones((count, count)), 1)


def _fill(weight: list[float], cap: list[float] | float, room: list[float]) -> list[float]:
    n = len(weight)
    caps = np.broadcast_to(np.array(cap), n)
    return fill(np.array(weight), caps, np.array(room), _chain(n)).tolist()  # type: ignore[no-any-return]


def test_layers_share_what_they_tolerate_among_the_sites_above() -> None:
    # three sites; the first has a layer that takes 6 of the two after it, the second one 1
    rho = _fill([1.0, 1.0, 1.0], np.inf, [6.0, 1.0, np.inf])
    assert np.isinf(rho[0]), "nothing is below it"
    assert rho[1:] == pytest.approx([5.0, 1.0], rel=1e-3)


def test_shares_grow_with_the_elements_and_what_a_cap_leaves_goes_to_the_others() -> None:
    room = [6.0, np.inf, np.inf]
    assert _fill([0.0, 1.0, 2.0], np.inf, room) == pytest.approx([0.0, 2.0, 4.0])
    assert _fill([0.0, 1.0, 2.0], [np.inf, 0.5, np.inf], room) == pytest.approx([0.0, 0.5, 5.5])


def test_a_site_that_hardly_reaches_a_layer_gets_as_much_more() -> None:
    """Equal parts of the room for equal elements, whatever is lost on the way."""
    reach = np.array([[1.0, 0.01]])
    rho = fill(np.ones(2), np.full(2, np.inf), np.array([2.0]), reach)
    assert rho.tolist() == pytest.approx([1.0, 100.0])


def test_a_layer_without_room_gets_nothing() -> None:
    rho = fill(np.ones(3), np.full(3, 5.0), np.zeros(1), np.array([[1.0, 0.0, 1e-6]]))
    assert rho.tolist() == [0.0, 5.0, 0.0]


NUMBERS = st.sampled_from([0.0, 0.01, 0.3, 1.0])


@st.composite
def problems(draw: st.DrawFn) -> tuple[Floats, Floats, Floats, Floats]:
    sites, layers = draw(st.integers(1, 8)), draw(st.integers(0, 6))

    def several(values: st.SearchStrategy[float], count: int) -> Floats:
        return np.array(draw(st.lists(values, min_size=count, max_size=count)))

    reach = several(NUMBERS, layers * sites).reshape(layers, sites)
    weight = several(st.sampled_from([0.0, 1.0, 7.0]), sites)
    cap = several(st.sampled_from([0.0, 0.1, 1.0, np.inf]), sites)
    return weight, cap, several(st.sampled_from([0.0, 0.3, 2.0, np.inf]), layers), reach


def _saved(weight: Floats, rho: Floats) -> float:
    return float((weight * np.log(np.maximum(rho, 1e-12)))[weight > 0].sum())


@settings(max_examples=300, deadline=None)
@given(problems())
def test_no_cap_and_no_layer_is_exceeded_and_nothing_is_left_over(
    problem: tuple[Floats, Floats, Floats, Floats],
) -> None:
    weight, cap, room, reach = problem
    rho = fill(weight, cap, room, reach)
    assert (rho[weight == 0] == 0).all()
    assert (rho <= cap).all()
    got = weighted(reach, rho)
    assert (got <= room * (1 + 1e-9) + 1e-12).all()
    for j in np.flatnonzero((weight > 0) & (rho < cap)):
        full = (got >= room * (1 - 1e-9)) & (reach[:, j] > 0)
        assert full.any() or np.isinf(rho[j]), "it could have had more"


def test_no_other_way_to_share_saves_noticeably_more_bits() -> None:
    """Against the best of many small changes that trade one site's noise for another's."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        sites, layers = 6, 5
        weight, room = rng.uniform(1, 10, sites), rng.uniform(0.1, 1, layers)
        reach = rng.uniform(0, 1, (layers, sites)) ** 4
        found = fill(weight, np.full(sites, np.inf), room, reach)
        best, at = _saved(weight, found), found.copy()
        for _ in range(3000):
            other = at * np.exp(rng.normal(0, 0.1, sites))
            other /= (reach @ other / room).max()
            if _saved(weight, other) > best:
                best, at = _saved(weight, other), other
        assert best - _saved(weight, found) < 0.02 * weight.sum(), "in natural units an element"
