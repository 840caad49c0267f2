"""What is known of a network's gradients at the last looks, as one problem for the solver.

Everything is taken in parts of ‖g‖² of its own look, or of the mean of the last looks if that is
larger: then neither a loss scale nor gradients that shrink as training goes on tell looks apart,
and a batch with hardly a gradient (a text classifier that knows most of its batches has some with
1e-4 of the others' ‖g‖²) is not what the mean is made of.
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
    """‖g‖² of the last looks, and the SGD variance of every parameter."""

    history: int
    sizes: dict[int, float] = field(default_factory=dict)  #: by the pass
    spreads: dict[int, dict[int, float]] = field(default_factory=dict)  #: by pass and parameter
    places: dict[str, list[int]] = field(default_factory=dict)  #: parameters of each layer

    def add(self, step: int, size: float, variances: Mapping[int, float], added: float) -> None:
        """A look; the codes were expected to have added `added` of the SGD variance to it."""
        self.sizes[step] = size
        self.spreads[step] = {i: v / (1 + added) for i, v in variances.items()}
        for old in sorted(self.sizes)[: -self.history]:
            del self.sizes[old], self.spreads[old]

    def scales(self) -> dict[int, float]:
        """What each look is taken in parts of."""
        usual = float(np.mean(list(self.sizes.values()))) if self.sizes else 0.0
        return {step: max(size, usual) for step, size in self.sizes.items()}

    def variances(self) -> dict[int, float]:
        """V of each parameter in these parts: the mean of the looks that know it."""
        scales = self.scales()
        known = [(scales[step], found) for step, found in self.spreads.items() if found]
        names = sorted({i for _, found in known for i in found})
        return {i: float(np.mean([v[i] / by for by, v in known if i in v])) for i in names}

    def state_dict(self) -> dict[str, Any]:
        spreads = {step: dict(v) for step, v in self.spreads.items()}
        return {"sizes": dict(self.sizes), "spreads": spreads, "places": dict(self.places)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sizes = dict(state["sizes"])
        self.spreads = {step: dict(v) for step, v in state["spreads"].items()}
        self.places = dict(state["places"])


@dataclass(frozen=True)
class Known:
    """The problem, the sites that its columns are of, and how far their channels' steps differ."""

    problem: Problem
    sites: list[str]
    directions: dict[str, Floats]


def known(told: Layers, looks: Looks, curves: Mapping[str, Curve]) -> Known | None:
    """What the last looks say of these sites; None when nothing."""
    scales = looks.scales()
    averages = {layer: average(told.readings(layer), scales) for layer in told}
    readings = {layer: r for layer, r in averages.items() if r is not None}
    exact_zeros = {site for site, curve in curves.items() if curve.relu}
    found, layers = touched(told, readings, scales, exact_zeros)
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
