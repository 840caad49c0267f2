"""Which layers' gradients an error in each stored tensor disturbs, and how much.

A site's errors show in the parameters of the ops that read it (control/error.py), in the op that
made a BatchNorm's input (control/batchnorm_trail.py), and in all layers below that the noise
travels to (control/propagation.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from actzip.control.layers import Layers
from actzip.control.propagation import Propagation, nonzero
from actzip.control.reading import Reading, mean

Floats = NDArray[np.float64]

#: What a trail does in all layers further below, for 1 in the first: 1.1 to 5 in a ResNet.
_FURTHER = 1.0

#: Numbers of a reading that grow with the square of the gradients.
_SQUARED = (
    *("parameter", "input", "channel_parameter", "channel_input", "worst_parameter"),
    *("worst_input", "parameter_signal", "input_signal", "outer_signal"),
)


@dataclass
class Touched:
    """What an error variance of 1 in each channel of a site adds, to which layers."""

    channels: Floats  #: to all layers together, by channel
    parts: list[tuple[Floats, Floats]] = field(default_factory=list)  #: (by channel, by layer)

    def add(self, channels: Floats, layers: Floats) -> None:
        """`channels` of noise, of which each layer gets `layers` times as much."""
        if len(channels) != len(self.channels):  # ops that see different channels: all alike
            channels = np.full(len(self.channels), channels.sum() / len(self.channels))
        self.parts.append((channels, layers))
        self.channels = self.channels + channels * layers.sum()

    def by_layer(self, direction: Floats) -> Floats:
        """E‖Δg‖² of each layer, when channel c has the error variance direction[c]²."""
        square = direction**2
        found: Floats = np.sum([(c @ square) * layers for c, layers in self.parts], axis=0)
        return found


def average(rows: Sequence[tuple[int, Reading]], scales: Mapping[int, float]) -> Reading | None:
    """The mean of readings, each in parts of its step's scale."""
    kept = [_scaled(r, 1 / scales[step]) for step, r in rows if scales.get(step, 0.0) > 0]
    return mean(kept)


def _scaled(r: Reading, by: float) -> Reading:
    return replace(r, **{name: getattr(r, name) * by for name in _SQUARED})


def touched(
    told: Layers,
    readings: Mapping[str, Reading],
    scales: Mapping[int, float],
    exact_zeros: Collection[str] = (),
) -> tuple[dict[str, Touched], list[str]]:
    """For every site that was read what its errors do, and the layers that the rows are of.

    The last row is of no layer: parameters that store nothing here, an embedding say. Readings are
    sums over elements that are not zero: all there is to sites whose codes have `exact_zeros`.
    """
    names = list(readings)
    place = {layer: i for i, layer in enumerate(names)}
    paths = Propagation(told.routes, readings)
    found: dict[str, Touched] = {}
    for layer, r in readings.items():
        site = told.site(layer)
        all_of = 1.0 if site in exact_zeros else nonzero(r)
        own, travels = r.channel_parameter.numpy() / all_of, r.channel_input.numpy() / all_of
        to = found.setdefault(site, Touched(np.zeros(len(own))))
        to.add(own, _unit(place[layer], len(names)))
        if travels.any():
            to.add(travels, paths.below(layer, names))
    for (site, layer), rows in told.trails().items():
        weights = [w.numpy() / scales[step] for step, w in rows if scales.get(step, 0.0) > 0]
        if weights and site in found and layer in place:
            share = _unit(place[layer], len(names))
            share[-1] += _FURTHER
            same = [w for w in weights if w.shape == weights[-1].shape]
            found[site].add(np.mean(same, axis=0), share)
    return found, names


def _unit(at: int, count: int) -> Floats:
    found = np.zeros(count + 1)
    found[at] = 1.0
    return found
