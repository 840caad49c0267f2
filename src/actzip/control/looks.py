"""What is known of a network's gradients at the last looks, as one problem for the solver.

Everything is taken in parts of ‖g‖² of its own look: then neither a loss scale nor gradients that
shrink as training goes on tell looks apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actzip.control.budget import Problem
from actzip.control.contributions import Touched, average, touched
from actzip.control.layers import Layers
from actzip.control.rate_curves import Curve

Floats = NDArray[np.float64]

#: V/‖g‖² where no parameter's gradient could be seen (sharded ones): less than any that was.
_ASSUMED = 0.1
_LEAST = 1e-3  #: of an equal share of V: a layer whose gradient vanishes is not what limits all


@dataclass
class Looks:
    """‖g‖² of the last looks, and the SGD variance of every parameter in parts of it."""

    history: int
    sizes: dict[int, float] = field(default_factory=dict)  #: by the pass
    shares: dict[int, dict[int, float]] = field(default_factory=dict)  #: by parameter
    places: dict[str, list[int]] = field(default_factory=dict)  #: parameters of each layer

    def add(self, step: int, size: float, variances: Mapping[int, float], added: float) -> None:
        """A look; the codes were expected to have added `added` of the SGD variance to it."""
        self.sizes[step] = size
        self.shares[step] = {i: v / size / (1 + added) for i, v in variances.items()}
        for old in sorted(self.sizes)[: -self.history]:
            del self.sizes[old], self.shares[old]

    def variances(self) -> dict[int, float]:
        """V/‖g‖² of each parameter: the mean of the looks that know it."""
        known = [s for s in self.shares.values() if s]
        names = sorted({i for s in known for i in s})
        return {i: float(np.mean([s[i] for s in known if i in s])) for i in names}

    def state_dict(self) -> dict[str, Any]:
        shares = {step: dict(s) for step, s in self.shares.items()}
        return {"sizes": dict(self.sizes), "shares": shares, "places": dict(self.places)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sizes = dict(state["sizes"])
        self.shares = {step: dict(s) for step, s in state["shares"].items()}
        self.places = dict(state["places"])


@dataclass(frozen=True)
class Known:
    """The problem, the sites that its columns are of, and how far their channels' steps differ."""

    problem: Problem
    sites: list[str]
    directions: dict[str, Floats]


def known(told: Layers, looks: Looks, curves: Mapping[str, Curve]) -> Known | None:
    """What the last looks say of these sites; None when nothing."""
    averages = {layer: average(told.readings(layer), looks.sizes) for layer in told}
    readings = {layer: r for layer, r in averages.items() if r is not None}
    exact_zeros = {site for site, curve in curves.items() if curve.relu}
    found, layers = touched(told, readings, looks.sizes, exact_zeros)
    # a site that no gradient feels now (behind a weight of 0) keeps the code it has
    sites = [s for s, to in found.items() if s in curves and to.channels.sum() > 0]
    sites = [s for s in sites if curves[s].size > 0]
    if not sites:
        return None
    directions = {s: _direction(found[s], curves[s]) for s in sites}
    noise = np.stack([_column(found[s], directions[s]) for s in sites], axis=1)
    each = looks.variances()
    signal = sum(float(r.parameter_signal) for r in readings.values())
    total = sum(each.values()) if each else _ASSUMED * signal
    variance = np.full(len(layers) + 1, np.inf)
    for i, layer in enumerate(layers):
        own = [each[p] for p in looks.places.get(layer, ()) if p in each]
        if own:
            variance[i] = max(sum(own), _LEAST * total / len(layers))
    problem = Problem(
        elements=np.array([float(curves[s].elements) for s in sites]),
        bits=np.array([curves[s].bits for s in sites]),
        unit=np.array([curves[s].size for s in sites]),
        coarsest=np.array([curves[s].coarsest for s in sites]),
        noise=noise,
        variance=variance,
        total=total,
    )
    return Known(problem, sites, directions)


def _direction(to: Touched, curve: Curve) -> Floats:
    """Steps of the channels beside each other: each adds the same noise, which takes the fewest
    bits as long as each has some; but none is much coarser beside its spread than the others."""
    if len(curve.direction) == 1:
        return np.ones(1)
    weights = to.channels
    least = weights[weights > 0].min() if (weights > 0).any() else 1.0
    found = 1 / np.sqrt(np.maximum(weights, max(least, weights.mean() * 1e-4)))
    scaled: Floats = found / np.exp(np.log(found).mean())
    return scaled


def _column(to: Touched, direction: Floats) -> Floats:
    """E‖Δg‖² of each layer for t²/12 = 1."""
    if len(direction) != len(to.channels):
        direction = np.ones(len(to.channels))
    return to.by_layer(direction)
