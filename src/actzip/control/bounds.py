"""How large may the error of each stored tensor be, for what its layers' gradients tolerate?

AC-GC and COMET ask the same: with |e| <= eb in a stored tensor, spread evenly by dither, how large
may eb be, if the gradients of layer l may be off by E‖Δg‖² <= A_l? A layer is hit by

- the code of its own input, Σ eb²·q with q = w/3 (or the worst case of control/error.py);
- a BatchNorm on its output, Σ eb²·h with the trail h of control/batchnorm_trail.py;
- noise that travels: site j, later in forward, puts ρⱼ = Σ eb²·t/‖g‖² of relative noise into
  the gradient, t as q, of which R_lj reaches the layer: it absorbs p_l·Σ R_lj·ρⱼ
  (control/propagation.py).

A share of A_l is for what travels, and is divided among the sites by control/waterfill.py. The rest
is divided between own code and trail such that both take the fewest bits. A parameter that is no
layer's, because its op stores nothing, an embedding say, only gets noise that travels. Noise whose
way is not known is limited as if it ended in such a parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actzip.control.propagation import Propagation, nonzero
from actzip.control.reading import Reading
from actzip.control.waterfill import fair, fill, weighted

Floats = NDArray[np.float64]

#: Parts of what a layer tolerates that may be given to noise that travels.
SHARES = (0.0, 1 / 64, 1 / 16, 1 / 4, 1 / 2, 3 / 4)

_FINEST = 2.0**-20  #: of the peak: below, float32 has hardly any rounding to save


@dataclass(frozen=True)
class Limit:
    """What a layer that reads a site's tensor tolerates."""

    reading: Reading
    tolerance: float  #: A_l: E‖Δg‖² of its parameters


@dataclass(frozen=True)
class BoundedSite:
    """A site that is to have a bound, with the layers that read its tensor."""

    limits: Mapping[str, Limit]  #: by the layer's name
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
            full = 3 * (nonzero(r) if self.dense else 1.0)
            q, t = r.channel_parameter / full, r.channel_input / full
        if not self._by_channel:
            q, t = q.sum().view(1), t.sum().view(1)
        return q.numpy(), t.numpy()

    @cached_property
    def _by_channel(self) -> bool:
        """Of three dimensions a BatchNorm takes the second for channels, other ops the last: then
        they saw other peaks, and one error is for all."""
        first, *others = (limit.reading.peak.numpy() for limit in self.limits.values())
        return self.channels and all(
            p.shape == first.shape and np.allclose(p, first) for p in others
        )

    @cached_property
    def peak(self) -> Floats:
        found = [limit.reading.peak.numpy() for limit in self.limits.values()]
        each = [p if self._by_channel else p.max(keepdims=True) for p in found]
        largest: Floats = np.max(each, 0)
        return np.maximum(largest, float(np.finfo(np.float32).tiny))


#: h of each channel of a site for a layer whose gradients its errors leave a trail in.
Trails = Mapping[tuple[str, str], Floats]


def cheapest(
    sites: Mapping[str, BoundedSite],
    trails: Trails,
    propagation: Propagation,
    worst: bool = False,
    ends: float = np.inf,
) -> dict[str, Floats]:
    """eb of each site, one number or one per channel: of all shares for travelling noise the one
    that takes the fewest bits, -Σ log eb. Sites are in the order of forward.

    With several channels each adds the same to the gradients' error: of all ways to spread it
    this takes the fewest bits, as all channels have equally many elements.

    ends  E‖Δg‖²/‖g‖² that parameters of ops that store nothing tolerate
    """
    flat = _Flat(sites, trails, worst)
    problem = _Problem(flat, propagation, ends)
    return flat.by_site(max(problem.errors(), key=flat.saved))


class _Flat:
    """Sites, layers and trails as arrays, so that a hundred sites cost no more calls than one.

    A channel is a channel of a site, an entry a channel of a site as one of its layers reads it.
    """

    def __init__(self, sites: Mapping[str, BoundedSite], trails: Trails, worst: bool):
        place = {name: j for j, name in enumerate(sites)}
        peaks = [site.peak for site in sites.values()]
        self.worst = worst
        self.names = list(sites)
        self.peak = _joined(peaks)
        self.size = np.array([len(peak) for peak in peaks], dtype=np.intp)  # channels of a site
        self.elements = np.array([float(site.elements) for site in sites.values()])
        self.site = np.repeat(np.arange(len(sites)), self.size)  # of each channel
        first = np.cumsum(self.size) - self.size

        limits = [(place[n], *pair) for n, site in sites.items() for pair in site.limits.items()]
        self.layers = {layer: i for i, (_, layer, _) in enumerate(limits)}
        self.home = np.array([j for j, _, _ in limits], dtype=np.intp)  # each layer's site
        self.tolerance = np.array([v.tolerance for _, _, v in limits])
        self.own_signal = np.array([float(v.reading.parameter_signal) for _, _, v in limits])
        self.signal = np.array([float(v.reading.input_signal) for _, _, v in limits])
        each = list(sites.values())
        pairs = [each[j].coefficients(v.reading, worst) for j, _, v in limits]
        self.q, self.t = (_joined([pair[i] for pair in pairs]) for i in (0, 1))
        self.layer, self.channel = _entries(self.home, first, self.size)
        self.sends = self.by_layer(self.t > 0) > 0  # layers whose input's noise travels on
        self.noisy = _sums(self.home, self.sends, len(self.names)) > 0

        known = [
            (place[s], self.layers[to], h)
            for (s, to), h in trails.items()
            if s in place and to in self.layers
        ]
        self.maker = np.array([j for j, _, _ in known], dtype=np.intp)  # each trail's site
        self.below = np.array([i for _, i, _ in known], dtype=np.intp)  # the layer it is left in
        spread = [
            h if len(h) == n else np.full(n, h.sum() / n)
            for (_, _, h), n in zip(known, self.size[self.maker], strict=True)
        ]
        self.h = _joined(spread)  # for a variance of 1
        self.trail, self.crossed = _entries(self.maker, first, self.size)
        self.makes = np.zeros(len(self.names), dtype=bool)
        self.makes[[place[s] for s, _ in trails if s in place]] = True

    def by_layer(self, entries: NDArray[Any]) -> Floats:
        """Sums of what each layer's entries have."""
        return _sums(self.layer, entries, len(self.layers))

    def by_site(self, channels: Floats) -> dict[str, Floats]:
        """What each site's channels have."""
        return dict(zip(self.names, np.split(channels, np.cumsum(self.size)[:-1]), strict=True))

    def saved(self, errors: Floats) -> float:
        """Bits that these bounds save, but for a constant and a factor."""
        sums = _sums(self.site, np.log(errors), len(self.names))
        return float(self.elements @ (sums / self.size))


def _joined(arrays: Sequence[Floats]) -> Floats:
    return np.concatenate(arrays) if arrays else np.zeros(0)


def _entries(
    sites: NDArray[np.intp], first: NDArray[np.intp], size: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """For each channel of each of these sites, which may come again: whose it is, and which."""
    count = size[sites]
    whose = np.repeat(np.arange(len(sites)), count)
    begins = np.cumsum(count) - count
    return whose, np.arange(len(whose)) - begins[whose] + first[sites][whose]


class _Problem:
    """The bounds of all sites, for a share of the tolerances that is for noise that travels.

    `squares` are eb² of all channels, inf where nothing limits them.
    """

    def __init__(self, flat: _Flat, propagation: Propagation, ends: float):
        self.flat = f = flat
        #: E‖Δg‖² that a layer absorbs for relative noise 1, and not less than its own signal: a
        #: gradient that is noisier than it is large is of no use to parameters that store nothing
        #: here, an embedding's say
        self.absorbs = np.maximum([propagation.absorbs(name) for name in f.layers], f.own_signal)
        at = list(f.layers)
        self.reach = np.zeros((len(at), len(f.names)))  # R: layers, sites
        self.reach_ends = np.zeros((propagation.ending, len(f.names)))
        self.ends = np.full(propagation.ending, ends)
        for i in np.flatnonzero(f.sends):
            self.reach[:, f.home[i]] += propagation.relative(at[i], at)
            self.reach_ends[:, f.home[i]] += propagation.relative_at_ends(at[i])
        self._end_what_is_lost(ends)
        self.everywhere = np.concatenate([self.reach, self.reach_ends])

    def _end_what_is_lost(self, ends: float) -> None:
        """Noise that travels on, but on no known way, as where a pass has another graph than the
        one that was read: it ends in parameters at once, of which it is all the noise."""
        known = self.reach.any(0) | self.reach_ends.any(0)
        lost = np.flatnonzero(self.flat.noisy & ~known)
        self.reach_ends = np.vstack([self.reach_ends, np.eye(len(self.flat.names))[lost]])
        self.ends = np.append(self.ends, np.full(len(lost), ends))

    def errors(self) -> list[Floats]:
        """eb of each channel, for each of the shares."""
        f = self.flat
        apart = [self._apart(share) for share in SHARES]
        caps = np.array([self._noise(squares) for squares in apart])
        rooms = np.array([self._rooms(share) for share in SHARES])
        weights, reach = np.where(f.noisy, f.elements, 0.0), self.everywhere
        ways = fair(weights, caps, rooms, reach)
        found = []
        for share, squares, cap, room, way in zip(SHARES, apart, caps, rooms, ways, strict=True):
            rho = fill(weights, cap, room, reach, way)
            found.append(self._given(self._travelling(squares, cap, rho), share))
        return found

    def _apart(self, share: float) -> Floats:
        """eb² by what layers have left for their own code and for trails."""
        f = self.flat
        reserved = np.full(len(f.layers), share)
        kept, scale = self._divide(self._own(reserved), share)
        return self._own(reserved + kept) * scale[f.site]

    def _given(self, squares: Floats, share: float) -> Floats:
        """eb: what makes no noise below may have all that is left over."""
        f = self.flat
        spare = self._own(self._used(squares, share))
        found = np.where((f.noisy | f.makes)[f.site], squares, spare)
        return np.clip(np.sqrt(found), f.peak * _FINEST, f.peak)

    def _own(self, reserved: Floats) -> Floats:
        """eb² by what the layers that read a site tolerate, less the part that each has reserved.

        inf where nothing limits it.
        """
        f = self.flat
        allowed = f.tolerance * self._rest(reserved) / np.maximum(1, f.size[f.home])
        found = np.full(len(f.peak), np.inf)
        np.minimum.at(found, f.channel, _quotient(allowed[f.layer], f.q))
        # channels that nothing limits, beside others: as far as they can matter
        finite = _sums(f.site, np.isfinite(found), len(f.names)) > 0
        return np.where(finite[f.site], np.minimum(found, f.peak**2), found)

    def _rest(self, share: Floats) -> Floats:
        """What is left of 1: independent errors add in squares, those that conspire as they are."""
        left: Floats = (1 - share**0.5) ** 2 if self.flat.worst else 1 - share
        return left

    # -- trails ----------------------------------------------------------------------------

    def _divide(self, squares: Floats, share: float) -> tuple[Floats, Floats]:
        """What part of A_l each layer keeps for trails, and how much less eb² their sites get.

        With a part c for the trail and 1 − c for its own code a layer saves log(1 − c) bits an
        element and the BatchNorm log c: best at c in proportion to the elements, or less if less
        is needed.
        """
        f = self.flat
        kept, scale = np.zeros(len(f.layers)), np.ones(len(f.names))
        if not len(f.maker):
            return kept, scale
        each = np.where(f.h > 0, squares[f.crossed], 0.0) * f.h / 3
        left = _sums(f.trail, each, len(f.maker))
        need = _quotient(left, f.tolerance[f.below])  # inf where nothing is tolerated
        need = np.where(np.isfinite(need), need, 0.0)
        total = _sums(f.below, need, len(f.layers))
        above = _sums(f.below, f.elements[f.maker], len(f.layers))
        best = (1 - share) * above / (above + f.elements[f.home])
        kept = np.where(total > 0, np.minimum(total, best), 0.0)
        part = np.divide(kept, total, out=np.ones_like(total), where=total > 0)
        np.minimum.at(scale, f.maker, part[f.below])
        return kept, scale

    # -- noise that travels ----------------------------------------------------------------

    def _rooms(self, share: float) -> Floats:
        """The relative noise that each layer tolerates, and what stores nothing."""
        own = _quotient(share * self.flat.tolerance, self.absorbs)
        return np.concatenate([own, self.ends])

    def _used(self, squares: Floats, share: float) -> Floats:
        """The part of A_l that trails and travelling noise take in fact, at most what they may."""
        kept, _ = self._divide(squares, share)
        noise, some = weighted(self.reach, self._noise(squares)), self.flat.tolerance > 0
        noise = np.where(self.absorbs > 0, noise, 0.0)[some] * self.absorbs[some]
        kept[some] += np.minimum(share, noise / self.flat.tolerance[some])
        return kept

    def _noise(self, squares: Floats) -> Floats:
        """ρ: the noise that such errors put into the gradients that travel on, relative to them."""
        f = self.flat
        put = f.by_layer(np.where(f.t > 0, squares[f.channel], 0.0) * f.t)
        there = f.sends & (f.signal > 0)
        found = np.zeros(len(f.names))
        np.maximum.at(found, f.home[there], put[there] / f.signal[there])
        return found

    def _travelling(self, squares: Floats, caps: Floats, rho: Floats) -> Floats:
        """eb² that keeps ρ: own bounds made smaller, or, without any, each channel its share."""
        f = self.flat
        as_it_is = (caps == 0) | np.isinf(rho)
        scaled = ~as_it_is & np.isfinite(caps)
        factor = np.divide(rho, caps, out=np.ones_like(rho), where=scaled)
        found = squares * np.minimum(1.0, factor)[f.site]
        free = (~as_it_is & ~scaled)[f.home][f.layer]
        if free.any():
            allowed = rho[f.home] * f.signal / np.maximum(1, f.size[f.home])
            most = _quotient(allowed[f.layer[free]], f.t[free])
            np.minimum.at(found, f.channel[free], most)
        return found


def _quotient(a: Floats, b: Floats) -> Floats:
    """a/b, and inf where b is 0."""
    found: Floats = np.divide(a, b, out=np.full(len(a), np.inf), where=b > 0)
    return found


def _sums(place: NDArray[np.intp], values: NDArray[Any], count: int) -> Floats:
    """Of the values at each of `count` places."""
    return np.bincount(place, values, count).astype(np.float64)
