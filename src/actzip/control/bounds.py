"""How large may the error of each stored tensor be, for what its layers' gradients can stand?

AC-GC and COMET ask the same: with |e| <= eb in a stored tensor, spread evenly by dither, how large
may eb be, if the gradients of layer l may be off by E‖Δg‖² <= A_l? A layer is hit by

- the code of its own input, Σ eb²·q with q = w/3 (or the worst case of control/error.py);
- a BatchNorm on its output, Σ eb²·h with the trail h of control/batchnorm_trail.py;
- noise that travels: site j, met later in forward, puts ρⱼ = Σ eb²·t/‖g‖² of relative noise into
  the gradient, t as q, and the layer absorbs p_l·Σρⱼ (control/travel.py).

A share of A_l is for what travels, and is divided among the sites by control/waterfill.py. The rest
is divided between own code and trail such that both take the fewest bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from actzip.control.reading import Reading
from actzip.control.travel import absorbed
from actzip.control.waterfill import fill

Floats = NDArray[np.float64]

#: Parts of what a layer stands that may be given to noise that travels.
SHARES = (0.0, 1 / 64, 1 / 16, 1 / 4, 1 / 2, 3 / 4)

_FINEST = 2.0**-20  #: of the peak: below, float32 has hardly any rounding to save


@dataclass(frozen=True)
class Load:
    """What one op that reads a site's tensor can stand."""

    reading: Reading
    stands: float  #: A_l: E‖Δg‖² of its parameters


@dataclass(frozen=True)
class Seen:
    """A site as backward and the forward before it saw it."""

    loads: Mapping[str, Load]  #: by the layer's name
    elements: int
    channels: bool = False  #: an error for each channel; else one for the tensor
    dense: bool = False  #: zeros get an error, too
    _known: dict[tuple[int, bool], tuple[Floats, Floats]] = field(default_factory=dict, repr=False)

    def coefficients(self, r: Reading, worst: bool) -> tuple[Floats, Floats]:
        """q and t: ‖Δg‖² = Σ eb²·q over the channels, for parameters and for what travels on."""
        key = id(r), worst
        if key not in self._known:  # asked for again and again while bounds are searched
            self._known[key] = self._coefficients(r, worst)
        return self._known[key]

    def _coefficients(self, r: Reading, worst: bool) -> tuple[Floats, Floats]:
        if worst:
            q, t = r.worst_parameter, r.worst_input
        else:  # a dithered error is uniform within ±eb: its variance is eb²/3
            full = 3 * (max(1 - float(r.zeros), 1e-6) if self.dense else 1.0)
            q, t = r.channel_parameter / full, r.channel_input / full
        if not self.channels:
            q, t = q.sum().view(1), t.sum().view(1)
        return q.numpy(), t.numpy()

    @cached_property
    def peak(self) -> Floats:
        found = [load.reading.peak.numpy() for load in self.loads.values()]
        largest: Floats = np.max([p if self.channels else p.max(keepdims=True) for p in found], 0)
        return np.maximum(largest, float(np.finfo(np.float32).tiny))


#: h of each channel of a site for a layer whose gradients its errors leave a trail in.
Trails = Mapping[tuple[str, str], Floats]


def errors(
    sites: Mapping[str, Seen], trails: Trails, share: float, worst: bool = False
) -> dict[str, Floats]:
    """eb of each site, one number or one per channel; sites are in the order of forward.

    With several channels each adds the same to the gradients' error: of all ways to spread it
    this takes the fewest bits, -Σ log eb, as all channels have equally many elements.
    """
    layers = [layer for seen in sites.values() for layer in seen.loads]
    reserved = dict.fromkeys(layers, share)
    kept, scale = _divide(sites, trails, _own(sites, reserved, worst), share)
    both = {layer: share + kept[layer] for layer in layers}
    squares = {n: s * scale[n] for n, s in _own(sites, both, worst).items()}
    squares = _limit(sites, squares, share, worst)
    spare = _own(sites, _used(sites, trails, squares, share, worst), worst)
    makers = {site for site, _ in trails}
    found = {}
    for name, seen in sites.items():
        noisy = name in makers or _travels(seen, worst)
        square = squares[name] if noisy else spare[name]
        found[name] = np.clip(np.sqrt(square), seen.peak * _FINEST, seen.peak)
    return found


def cheapest(sites: Mapping[str, Seen], trails: Trails, worst: bool = False) -> dict[str, Floats]:
    """The errors with the share for travelling noise that takes the fewest bits, -Σ log eb."""

    def saved(found: Mapping[str, Floats]) -> float:
        return sum(seen.elements * float(np.log(found[n]).mean()) for n, seen in sites.items())

    return max((errors(sites, trails, share, worst) for share in SHARES), key=saved)


def _own(
    sites: Mapping[str, Seen], reserved: Mapping[str, float], worst: bool
) -> dict[str, Floats]:
    """eb² by what the layers that read a site stand, less the part that each has reserved.

    inf where nothing limits it.
    """
    found = {}
    for name, seen in sites.items():
        size = len(seen.peak)
        square = np.full(size, np.inf)
        for layer, load in seen.loads.items():
            q, _ = seen.coefficients(load.reading, worst)
            allowed = load.stands * _rest(reserved[layer], worst)
            each = np.divide(allowed / size, q, out=np.full(size, np.inf), where=q > 0)
            square = np.minimum(square, each)
        # channels that nothing limits, beside others: as far as they can matter
        found[name] = np.minimum(square, seen.peak**2) if np.isfinite(square).any() else square
    return found


def _used(
    sites: Mapping[str, Seen],
    trails: Trails,
    squares: Mapping[str, Floats],
    share: float,
    worst: bool,
) -> dict[str, float]:
    """The part of A_l that trails and travelling noise take in fact, not more than was reserved."""
    kept, _ = _divide(sites, trails, squares, share)
    above = 0.0
    for name in reversed(list(sites)):
        seen = sites[name]
        for layer, load in seen.loads.items():
            if load.stands > 0:
                kept[layer] += min(share, above * _takes(load.reading) / load.stands)
        above += _noise(seen, squares[name], worst)
    return kept


def _takes(r: Reading) -> float:
    """What a layer absorbs of travelling noise, and not less than its own signal.

    A gradient that is noisier than it is large is of no use to parameters that store nothing
    here, an embedding's say.
    """
    return max(absorbed(r), float(r.parameter_signal))


def _rest(share: float, worst: bool) -> float:
    """What is left of 1: independent errors add in squares, errors that conspire as they are."""
    return (1 - share**0.5) ** 2 if worst else 1 - share


def _divide(
    sites: Mapping[str, Seen],
    trails: Trails,
    squares: Mapping[str, Floats],
    share: float,
) -> tuple[dict[str, float], dict[str, float]]:
    """What part of A_l each layer keeps for trails, and how much less eb² their sites get for it.

    With a part c for the trail and 1 − c for its own code a layer saves log(1 − c) bits an element
    and the BatchNorm log c: best at c in proportion to the elements, or less if less is needed.
    """
    home = {layer: name for name, seen in sites.items() for layer in seen.loads}
    kept, scale = dict.fromkeys(home, 0.0), dict.fromkeys(sites, 1.0)
    for layer, name in home.items():
        stands = sites[name].loads[layer].stands
        from_ = [s for s, to in trails if to == layer and s in squares and stands > 0]
        need = {s: _trail(trails[s, layer], squares[s]) / stands for s in from_}
        total = sum(n for n in need.values() if np.isfinite(n))
        if not total > 0:
            continue
        above = sum(sites[s].elements for s in from_)
        best = (1 - share) * above / (above + sites[name].elements)
        kept[layer] = min(total, best)
        for s in from_:
            scale[s] = min(scale[s], kept[layer] / total)
    return kept, scale


def _trail(h: Floats, square: Floats) -> float:
    """E‖Δg‖² that errors at a BatchNorm's input leave below; h is for a variance of 1."""
    if len(h) != len(square):
        h = np.full(len(square), h.sum() / len(square))
    return float((np.where(h > 0, square, 0.0) * h).sum()) / 3


def _limit(
    sites: Mapping[str, Seen], squares: Mapping[str, Floats], share: float, worst: bool
) -> dict[str, Floats]:
    """eb² such that no layer gets more travelling noise than its share."""
    caps = np.array([_noise(seen, squares[n], worst) for n, seen in sites.items()])
    weights = [float(s.elements) if _travels(s, worst) else 0.0 for s in sites.values()]
    rho = fill(np.array(weights), caps, _rooms(sites, share))
    return {
        name: _travelling(seen, squares[name], cap, part, worst)
        for (name, seen), cap, part in zip(sites.items(), caps, rho, strict=True)
    }


def _travels(seen: Seen, worst: bool) -> bool:
    return any((seen.coefficients(v.reading, worst)[1] > 0).any() for v in seen.loads.values())


def _noise(seen: Seen, square: Floats, worst: bool) -> float:
    """ρ: the noise that such errors put into the gradients that travel on, relative to them."""
    total = 0.0
    for load in seen.loads.values():
        _, t = seen.coefficients(load.reading, worst)
        signal = float(load.reading.input_signal)
        if (t > 0).any() and signal > 0:
            total = max(total, float(np.where(t > 0, square, 0.0) @ t) / signal)
    return total


def _travelling(seen: Seen, square: Floats, cap: float, rho: float, worst: bool) -> Floats:
    """eb² that keeps ρ: the own bounds made smaller, or, without any, each channel its share."""
    if cap == 0 or np.isinf(rho):
        return square
    if np.isfinite(cap):
        return square * min(1.0, rho / cap)
    found = square
    for load in seen.loads.values():
        _, t = seen.coefficients(load.reading, worst)
        allowed = rho * float(load.reading.input_signal) / len(t)
        found = np.minimum(found, np.divide(allowed, t, out=np.full(len(t), np.inf), where=t > 0))
    return found


def _rooms(sites: Mapping[str, Seen], share: float) -> Floats:
    """Σρ that the layers which read each site stand."""
    rooms = np.full(len(sites), np.inf)
    for i, seen in enumerate(sites.values()):
        for load in seen.loads.values():
            takes = _takes(load.reading)
            if takes > 0:
                rooms[i] = min(rooms[i], share * load.stands / takes)
    return rooms
