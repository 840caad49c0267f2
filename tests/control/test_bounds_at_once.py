"""Bounds of all sites at once are those that come of taking site after site."""

from __future__ import annotations

import numpy as np
import plain_bounds
import pytest
import torch

from actzip.control import bounds
from actzip.control.layers import Route
from actzip.control.propagation import Propagation
from actzip.control.reading import Reading
from actzip.control.waterfill import fill


def _reading(rng: np.random.Generator, channels: int) -> Reading:
    """Sizes over many orders of magnitude, channels that nothing feels, layers without a signal."""

    def numbers(zeros: float, count: int = channels) -> torch.Tensor:
        found = 10 ** rng.uniform(-4, 4, count) * (rng.random(count) >= zeros)
        return torch.from_numpy(found)

    own, travels = (numbers(rng.choice([0.0, 0.3, 1.0], p=[0.5, 0.3, 0.2])) for _ in "qt")
    named = ("power", "parameter_signal", "parameter_count", "input_signal", "outer_signal")
    return Reading(
        **{name: numbers(0.1, 1)[0] for name in named},
        parameter=own.sum().view(1),
        input=travels.sum().view(1),
        channel_parameter=own,
        channel_input=travels,
        worst_parameter=own * 50,
        worst_input=travels * 50,
        peak=numbers(0.05),
        zeros=torch.tensor(rng.uniform(0, 0.9), dtype=torch.float64),
    )


def _problem(
    seed: int,
) -> tuple[dict[str, bounds.BoundedSite], bounds.Trails, Propagation]:
    """A network of sites with one to three readers, branches, and trails to layers below."""
    rng = np.random.default_rng(seed)
    sites, readings, routes, trails = {}, {}, {}, {}
    for j in range(int(rng.integers(1, 14))):
        by_channel, count, limits = bool(rng.random() < 0.4), int(rng.integers(1, 6)), {}
        for i in range(int(rng.choice([1, 1, 1, 2, 3]))):
            layer, r = f"{j}.{i}", _reading(rng, count)
            tolerance = float(10 ** rng.uniform(-4, 4) * (rng.random() >= 0.1))
            limits[layer], readings[layer] = bounds.Limit(r, tolerance), r
            known = list(routes)
            parents = rng.permutation(known)[: int(rng.integers(0, 3))].tolist()
            ends, biases = (int(n) for n in rng.integers(0, 2, 2))
            routes[layer] = Route((layer,), tuple(parents), ends, biases)
        elements, dense = int(rng.integers(1, 10**6)), bool(rng.random() < 0.2)
        sites[f"site {j}"] = bounds.BoundedSite(limits, elements, by_channel, dense)
        if by_channel and j:
            below = str(rng.choice(list(routes)))
            size = count if rng.random() < 0.8 else count + 1
            trails[f"site {j}", below] = rng.uniform(-0.1, 1, size).clip(0) * 10 ** rng.uniform(
                -3, 3
            )
    trails["left out", "0.0"] = np.ones(1)
    return sites, trails, Propagation(routes, readings)


@pytest.mark.parametrize("worst", [False, True])
@pytest.mark.parametrize("ends", [np.inf, 0.3])
def test_bounds_are_those_of_site_after_site(worst: bool, ends: float) -> None:
    for seed in range(60):
        sites, trails, propagation = _problem(seed)
        with np.errstate(all="ignore"):
            one_by_one = plain_bounds.cheapest(sites, trails, propagation, worst, ends)
        at_once = bounds.cheapest(sites, trails, propagation, worst, ends)
        assert list(at_once) == list(one_by_one)
        for name, expected in one_by_one.items():
            np.testing.assert_allclose(at_once[name], expected, rtol=1e-9, err_msg=f"{seed} {name}")


def test_shares_are_those_of_round_after_round() -> None:
    for seed in range(200):
        rng = np.random.default_rng(seed)
        layers, count = (int(n) for n in rng.integers(1, 9, 2))
        reach = rng.uniform(0, 1, (layers, count)) * (rng.random((layers, count)) < 0.5)
        weight = rng.uniform(1, 1e6, count) * (rng.random(count) < 0.8)
        cap = np.where(rng.random(count) < 0.3, np.inf, 10 ** rng.uniform(-3, 3, count))
        room = np.where(rng.random(layers) < 0.2, np.inf, rng.choice([0.0, 0.1, 5.0], layers))
        expected = plain_bounds.fill(weight, cap, room, reach)
        np.testing.assert_allclose(fill(weight, cap, room, reach), expected, rtol=1e-9)
