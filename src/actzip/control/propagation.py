"""How noise travels: what an error in one stored tensor does to the gradients of all layers below.

An op that gets noise of the power n at its output, where the gradient has the power ‖gY‖², has the
relative noise ρ = n/‖gY‖². Then

- its parameters absorb ρ·Σ w·mean(x²), as if its input had noise of that relative power, and each
  bias, which sums the gradient as it is, n;
- what it gives to the ops below has noise of ρ·‖gX‖²;
- where branches meet, their noises add up and are diluted by the sum of their gradients, which is
  known: an op's own ‖gY‖². Where they part, each gets noise in proportion to its part.

Every method reads this one model: ActNN and the guard ask what all parameters below get in total
(`Propagation.factors`, `effects`), AC-GC and COMET what each layer gets (`Propagation.relative`). A
chain of ops without branches is the case of one parent each, where relative noise stays as it is.

It holds for noise that is independent from element to element. On a ViT the measured noise was 0.2
to 2.4 times this, 0.12 at a GELU; what a BatchNorm adds beyond it is in control/batchnorm_trail.py.
For errors that conspire (AC-GC's bound="worst_case") there is no bound on what travels but the
product of the ops' norms, which is of no use: there, too, the travelling part is this model, and
only a layer's own code is bounded strictly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from actzip.control.layers import Layers, Route
from actzip.control.op import Kind
from actzip.control.reading import Reading

Floats = NDArray[np.float64]

_BELOW = 2.0  #: what a trail does in all layers below, for 1 in the first: 1.1 to 5 in a ResNet


def absorbed(r: Reading) -> float:
    """E‖Δg‖² of a layer's weights when the gradient at its op's output has relative noise 1.

    Exact for noise that is spread like the gradient and independent from element to element.
    """
    return float(r.parameter.sum()) / nonzero(r) * float(r.power)


def nonzero(r: Reading) -> float:
    """The part of Σ w that is not of exact zeros: a reading has the sums over that part only."""
    return max(1 - float(r.zeros), 1e-6)


class Propagation:
    """Where noise goes in one network: routes in the order of forward, readings by layer."""

    def __init__(self, routes: Mapping[str, Route], readings: Mapping[str, Reading]):
        self._ops = {slot: i for i, route in enumerate(routes.values()) for slot in route.slots}
        count = len(routes)
        self._given, self._outer = np.zeros(count), np.zeros(count)  # ‖gX‖² and ‖gY‖² of each op
        self._own = np.zeros(count)  # E‖Δg‖² of an op's parameters for power 1 at its gY
        self._ends = np.array([float(route.ends) for route in routes.values()])
        self._absorbs = {layer: absorbed(r) for layer, r in readings.items()}
        self._power = np.zeros((count, count))  # [i, k]: at gY of k, for power 1 in gX of i
        place = {name: i for i, name in enumerate(routes)}
        for i, route in enumerate(routes.values()):
            self._read(i, route, readings)
            before = [place[p] for p in route.parents if place.get(p, i) < i]
            for k in before:
                share = self._share(i, k)
                self._power[i] += share * self._passed(k) * self._power[k]
                self._power[i, k] += share
            unread = not any(slot in readings for slot in route.slots)
            if unread:  # an op on a leaf that is kept exactly: its parameters get what comes
                self._ends[i] += route.biases
            goes_on = unread or self._given[i] > 0
            if len(before) < len(route.parents) or (goes_on and not before):
                # the rest of its way was that of another graph: what goes it may end at once
                self._ends[i] = max(1.0, self._ends[i])

    def _read(self, i: int, route: Route, readings: Mapping[str, Reading]) -> None:
        found = [slot for slot in route.slots if slot in readings]
        if not found:
            return  # nothing is known of it but that it is on the way
        first = readings[found[0]]
        self._given[i], self._outer[i] = float(first.input_signal), float(first.outer_signal)
        self._absorbs[found[0]] += route.biases * self._outer[i]
        if self._outer[i] > 0:
            self._own[i] = sum(self._absorbs[slot] for slot in found) / self._outer[i]

    def _share(self, i: int, k: int) -> float:
        """Of the noise in what op i gives, the part that comes to its parent k."""
        given, outer = self._given[i], self._outer[k]
        return min(1.0, outer / given) if given > 0 and outer > 0 else 1.0

    def _passed(self, k: int) -> float:
        """Noise in gX of an op for 1 at its gY; if nothing is known of it, what comes goes on."""
        return self._given[k] / self._outer[k] if self._outer[k] > 0 else 1.0

    def _to_ends(self) -> Floats:
        """E‖Δg‖² of parameters that get gX as it is, for power 1 in what each op gives."""
        passed = np.array([self._passed(k) for k in range(len(self._own))])
        found: Floats = self._ends + self._power @ (passed * self._ends)
        return found

    def factors(self) -> dict[str, float]:
        """E‖Δg‖² of all parameters below, for ‖Δg‖² = 1 in what each layer gives; by layer."""
        total = self._power @ self._own + self._to_ends()
        return {slot: float(total[i]) for slot, i in self._ops.items()}

    def below(self, layer: str, at: Sequence[str]) -> Floats:
        """E‖Δg‖² of the parameters of the layers `at`, and, last, of those that are no layer's, for
        ‖Δg‖² = 1 in what `layer` gives. Over all layers it adds up to the factor."""
        i = self._ops.get(layer)
        if i is None:
            return np.zeros(len(at) + 1)
        absorbs = np.array([self.absorbs(other) for other in at])
        given = self._given[i]
        found = self.relative(layer, at) * absorbs / given if given > 0 else np.zeros(len(at))
        return np.append(found, self._to_ends()[i])

    def relative(self, layer: str, at: Sequence[str]) -> Floats:
        """Relative noise at the outputs of the layers `at`, for 1 in what `layer` gives."""
        i, found = self._ops.get(layer), np.zeros(len(at))
        if i is not None:
            k = np.array([self._ops.get(other, -1) for other in at], dtype=np.intp)
            felt = (k >= 0) & (self._outer[k] > 0)
            found[felt] = self._power[i, k[felt]] * self._given[i] / self._outer[k[felt]]
        return found

    @property
    def ending(self) -> int:
        """How many ops give a gradient to a parameter as it is."""
        return int((self._ends > 0).sum())

    def relative_at_ends(self, layer: str) -> Floats:
        """Relative noise in what each of these ops gives, for 1 in what `layer` gives."""
        i, at = self._ops.get(layer), np.flatnonzero(self._ends > 0)
        if i is None:
            return np.zeros(len(at))
        outer, power = self._outer[at], self._power[i, at]
        # relative noise stays as it is on its way through an op, and if nothing is known of the op
        found: Floats = (power > 0).astype(np.float64)
        np.divide(power * self._given[i], outer, out=found, where=outer > 0)
        found += at == i
        return found

    def absorbs(self, layer: str) -> float:
        """E‖Δg‖² of a layer's parameters, biases too, for relative noise 1 at its output."""
        return self._absorbs.get(layer, 0.0)


# -- what an error at a site does in all ----------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    """What one layer that reads a site's tensor makes of an error in it."""

    reading: Reading
    factor: float  #: E‖Δg‖² of the parameters below, for 1 in what it gives
    trail: float = 0.0  #: E‖Δg‖² = s²·trail in the layer below a BatchNorm

    def weights(self) -> Tensor:
        """w of each sample for a group code: E‖Δg‖² = Σ s²·w, s² the mean variance of a sample.

        Of elements that are not zero: divide by `nonzero` for a code that gives zeros an error.
        """
        r = self.reading
        return self._weights(r.parameter * r.parameter_focus, r.input * r.input_focus)

    def even_weight(self) -> float:
        """w of the whole tensor for a code with the same variance s² at every element."""
        return float(self._weights(self.reading.parameter, self.reading.input).sum())

    def _weights(self, own: Tensor, given: Tensor) -> Tensor:
        w = own + given * self.factor
        if self.trail:  # an error of gγ that all positions share: it comes from where gγ's does
            like = own if float(own.sum()) > 0 else given
            w = w + _BELOW * self.trail * like / like.sum().clamp(min=1e-300)
        return w


def effects(layers: Layers, sites: Iterable[str]) -> dict[str, list[Effect]]:
    """By site, in this order, what the layers that read it said last; sites of none are left out.

    E‖Δg‖² of all parameters is the sum over sites, and over their effects, of s²·w.
    """
    readings = {layer: layers.readings(layer)[-1][1] for layer in layers}
    factors = Propagation(layers.routes, readings).factors()
    trails: dict[str, float] = {}
    for (site, _), rows in layers.trails().items():
        trails[site] = trails.get(site, 0.0) + float(rows[-1][1].sum())
    found: dict[str, list[Effect]] = {site: [] for site in sites}
    for layer, reading in readings.items():
        site = layers.site(layer)
        trail = trails.get(site, 0.0) if layers.kind(layer) is Kind.BATCH_NORM else 0.0
        if site in found:
            found[site].append(Effect(reading, factors.get(layer, 0.0), trail))
    return {site: each for site, each in found.items() if each}
