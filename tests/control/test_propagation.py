"""How noise is said to travel: small networks with answers known by hand, and real ones."""

from __future__ import annotations

import pytest
import torch
from test_bit_allocation import a_reading

from actzip.control.layers import Layers, Route
from actzip.control.op import Kind
from actzip.control.propagation import Effect, Propagation, effects
from actzip.control.reading import Reading


def _factors(routes: dict[str, Route], readings: dict[str, Reading]) -> dict[str, float]:
    return Propagation(routes, readings).factors()


def told(outer: float, given: float, absorbs: float = 0.0) -> Reading:
    return a_reading([absorbs], power=1.0, outer_signal=outer, input_signal=given)


def test_noise_is_relative_to_the_gradient_it_is_in() -> None:
    routes = {"a": Route(("a",), (), 0, 1), "b": Route(("b",), ("a",), 0, 0)}
    found = _factors(routes, {"a": told(4.0, 0.0, absorbs=12.0), "b": told(1.0, 4.0)})
    assert found["a"] == 0
    # 1 of 4 in a's gradient: a quarter of what it absorbs, and all of it in its bias
    assert found["b"] == 12 / 4 + 1


def test_a_branch_is_diluted_by_the_gradient_it_joins() -> None:
    """b gives 1, but a's whole gradient is 100, from others: noise of b is small beside it."""
    routes = {"a": Route(("a",), (), 0, 0), "b": Route(("b",), ("a",), 0, 0)}
    found = _factors(routes, {"a": told(100.0, 0.0, absorbs=50.0), "b": told(1.0, 1.0)})
    assert found["b"] == 50 / 100


def test_what_is_lost_on_the_way_is_lost_to_the_noise_too() -> None:
    """A pooling or a mask between b and a lets a quarter through."""
    routes = {"a": Route(("a",), (), 0, 0), "b": Route(("b",), ("a",), 0, 0)}
    found = _factors(routes, {"a": told(1.0, 0.0, absorbs=8.0), "b": told(1.0, 4.0)})
    assert found["b"] == 8 / 4


def test_noise_goes_on_through_ops_and_to_parameters_beside_them() -> None:
    routes = {
        "a": Route(("a",), (), 0, 0),
        "unknown": Route(("unknown",), ("a",), 1, 0),  # no formula: nothing was told of it
        "b": Route(("b", "b2"), ("unknown",), 2, 0),
        "c": Route(("c",), ("b",), 0, 0),
    }
    readings = {"a": told(1, 0, absorbs=3.0), "b": told(2, 2), "c": told(1, 1)}
    found = _factors(routes, readings)
    assert found["b"] == found["b2"] == 2 + (1 + 3)
    assert found["c"] == pytest.approx(6)


def test_in_a_chain_relative_noise_stays_as_it_is() -> None:
    """Each op's gradient is what the one after it gives: every layer absorbs the same part."""
    routes = {n: Route((n,), tuple("abc"[i - 1 : i]), 0, 0) for i, n in enumerate("abc")}
    readings = {"a": told(8.0, 0.0, 3.0), "b": told(2.0, 8.0, 7.0), "c": told(1.0, 2.0, 9.0)}
    found = Propagation(routes, readings)
    assert found.relative("c", ["a", "b", "c"]).tolist() == [1.0, 1.0, 0.0]
    assert found.relative("b", ["a", "b", "c"]).tolist() == [1.0, 0.0, 0.0]
    assert found.factors() == {"a": 0.0, "b": 3 / 8, "c": (3 + 7) / 2}


def test_branches_that_meet_add_their_noise() -> None:
    """c gives to b and, past it, to a: a gets both, beside a gradient of 10."""
    routes = {
        "a": Route(("a",), (), 0, 0),
        "b": Route(("b",), ("a",), 0, 0),
        "c": Route(("c",), ("b", "a"), 0, 0),
    }
    readings = {"a": told(10.0, 0.0, 1.0), "b": told(4.0, 2.0), "c": told(1.0, 4.0)}
    # relative noise 1 in c's 4: b has it too and gives 2 of its 2, and 4 come directly
    assert Propagation(routes, readings).relative("c", ["a"]).tolist() == pytest.approx([0.6])


def test_a_layer_absorbs_noise_in_its_biases_too() -> None:
    routes = {"a": Route(("a",), (), 0, 2)}
    reading = told(4.0, 0.0, absorbs=3.0)
    assert Propagation(routes, {"a": reading}).absorbs("a") == 3 + 2 * 4


def test_what_all_layers_get_adds_up_to_the_factor() -> None:
    routes = {
        "a": Route(("a", "a2"), (), 1, 1),
        "b": Route(("b",), ("a",), 0, 0),
        "c": Route(("c",), ("b", "a"), 2, 0),
    }
    readings = {
        "a": told(10.0, 2.0, 1.0),
        "a2": told(10.0, 2.0, 3.0),
        "b": told(4.0, 2.0, 5.0),
        "c": told(1.0, 4.0, 7.0),
    }
    found = Propagation(routes, readings)
    layers = list(readings)
    for layer, factor in found.factors().items():
        assert found.below(layer, layers).sum() == pytest.approx(factor), layer
    # c's 1 comes to b and, with what b passes on, 1.5 to a: 2 + 1.5·2/10 end at parameters
    assert found.below("c", layers).tolist() == pytest.approx(
        [1.5 * (1 + 10) / 10, 1.5 * 3 / 10, 5 / 4, 0.0, 2.3]
    )


def test_parameters_of_an_op_that_said_nothing_get_the_noise_that_comes() -> None:
    """`parameter.sigmoid()`, kept exactly, has no reading; what comes is its parameter's noise."""
    routes = {"a": Route(("a",), (), 0, 1), "b": Route(("b",), ("a",), 0, 0)}
    found = Propagation(routes, {"b": told(1.0, 4.0)})
    assert found.factors()["b"] == 1.0
    assert found.relative_at_ends("b").tolist() == [1.0]


def test_a_way_that_is_not_known_ends_at_once() -> None:
    """A parent that comes later, or is not there, is of another graph: what a gives is some
    parameter's gradient, at which place is not known."""
    routes = {"a": Route(("a",), ("b", "gone"), 0, 0), "b": Route(("b",), ("a",), 0, 0)}
    readings = {"a": told(1.0, 1.0, absorbs=3.0), "b": told(1.0, 1.0)}
    assert _factors(routes, readings) == {"a": 1.0, "b": 3.0 + 1.0}
    nowhere = {"b": Route(("b",), (), 0, 2)}  # and where it ended at b's own parameters before
    assert _factors(nowhere, {"b": told(1.0, 1.0)}) == {"b": 1.0}


def test_routes_have_the_order_of_the_last_forward() -> None:
    layers = Layers()
    for name in "aba":
        layers.connect(Route((name,), (), 0, 0))
    assert list(layers.routes) == ["b", "a"]


def test_effects_of_a_site_are_those_of_all_layers_that_read_it() -> None:
    layers = Layers()
    for name, site, kind, parents in (
        ("conv", "conv", Kind.CONVOLUTION, ()),
        ("norm", "shared", Kind.BATCH_NORM, ("conv",)),
        ("other", "shared", Kind.DENSE, ("conv",)),
    ):
        layers.expect(name, kind, ())
        layers.connect(Route((name,), parents, 0, 0))
        given = 4.0 if parents else 0.0  # the first one gives nothing on
        reading = a_reading([2.0], input=3.0, power=1.0, outer_signal=4.0, input_signal=given)
        layers.add(0, name, site, reading)
    layers.add_trail(0, "shared", "conv", torch.tensor([0.25, 0.5]))
    found = effects(layers, ["shared", "conv", "unread"])
    assert list(found) == ["shared", "conv"]
    norm, other = found["shared"]
    assert (norm.factor, norm.trail) == (0.5, 0.75)
    assert (other.factor, other.trail) == (0.5, 0.0)
    assert other.even_weight() == 2 + 0.5 * 3
    assert norm.even_weight() == 2 + 0.5 * 3 + 2 * 0.75


def test_an_even_code_has_no_focus() -> None:
    effect = Effect(a_reading([1.0, 3.0], parameter_focus=5.0), 0.0)
    assert effect.weights().tolist() == [5.0, 15.0]
    assert effect.even_weight() == 4.0
