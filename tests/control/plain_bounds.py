"""Bounds and shares site by site and layer by layer, in plain Python: slow, and easy to check."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from actzip.control.bounds import _FINEST, SHARES, BoundedSite, Floats, Trails
from actzip.control.propagation import Propagation
from actzip.control.waterfill import _CHEAPEST, _ROUNDS


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

    def saved(found: Mapping[str, Floats]) -> float:
        return sum(site.elements * float(np.log(found[n]).mean()) for n, site in sites.items())

    problem = _Problem(sites, trails, propagation, worst, ends)
    return max((problem.errors(share) for share in SHARES), key=saved)


class _Problem:
    """The bounds of all sites, for a share of the tolerances that is for noise that travels."""

    def __init__(
        self,
        sites: Mapping[str, BoundedSite],
        trails: Trails,
        propagation: Propagation,
        worst: bool,
        ends: float,
    ):
        self.sites, self.trails, self.worst = sites, trails, worst
        self.limits = {layer: v for site in sites.values() for layer, v in site.limits.items()}
        #: E‖Δg‖² that a layer absorbs for relative noise 1, and not less than its own signal: a
        #: gradient that is noisier than it is large is of no use to parameters that store nothing
        #: here, an embedding's say
        self.absorbs = {
            layer: max(propagation.absorbs(layer), float(v.reading.parameter_signal))
            for layer, v in self.limits.items()
        }
        self.noisy = [self._is_noisy(site) for site in sites.values()]
        at = list(self.limits)
        self.reach = np.zeros((len(at), len(sites)))  # R: layers, sites
        self.reach_ends = np.zeros((propagation.ending, len(sites)))
        self.ends = np.full(propagation.ending, ends)
        for j, site in enumerate(sites.values()):
            for layer, v in site.limits.items():
                if (site.coefficients(v.reading, worst)[1] > 0).any():
                    self.reach[:, j] += propagation.relative(layer, at)
                    self.reach_ends[:, j] += propagation.relative_at_ends(layer)
        self._end_what_is_lost(ends)

    def _end_what_is_lost(self, ends: float) -> None:
        """Noise that travels on, but on no known way, as where a pass has another graph than the
        one that was read: it ends in parameters at once, of which it is all the noise."""
        known = self.reach.any(0) | self.reach_ends.any(0)
        lost = np.flatnonzero(np.array(self.noisy, dtype=bool) & ~known)
        self.reach_ends = np.vstack([self.reach_ends, np.eye(len(self.sites))[lost]])
        self.ends = np.append(self.ends, np.full(len(lost), ends))

    def errors(self, share: float) -> dict[str, Floats]:
        """eb of each site."""
        kept, scale = self._divide(self._own(dict.fromkeys(self.limits, share)), share)
        both = {layer: share + part for layer, part in kept.items()}
        squares = {n: s * scale[n] for n, s in self._own(both).items()}
        squares = self._limited(squares, share)
        spare = self._own(self._used(squares, share))
        makers = {site for site, _ in self.trails}
        found = {}
        for (name, site), noisy in zip(self.sites.items(), self.noisy, strict=True):
            square = squares[name] if noisy or name in makers else spare[name]
            found[name] = np.clip(np.sqrt(square), site.peak * _FINEST, site.peak)
        return found

    def _own(self, reserved: Mapping[str, float]) -> dict[str, Floats]:
        """eb² by what the layers that read a site tolerate, less the part that each has reserved.

        inf where nothing limits it.
        """
        found = {}
        for name, site in self.sites.items():
            size = len(site.peak)
            square = np.full(size, np.inf)
            for layer, limit in site.limits.items():
                q, _ = site.coefficients(limit.reading, self.worst)
                allowed = limit.tolerance * self._rest(reserved[layer])
                each = np.divide(allowed / size, q, out=np.full(size, np.inf), where=q > 0)
                square = np.minimum(square, each)
            # channels that nothing limits, beside others: as far as they can matter
            finite = np.isfinite(square).any()
            found[name] = np.minimum(square, site.peak**2) if finite else square
        return found

    def _rest(self, share: float) -> float:
        """What is left of 1: independent errors add in squares, those that conspire as they are."""
        return float((1 - share**0.5) ** 2) if self.worst else 1 - share

    # -- trails ----------------------------------------------------------------------------

    def _divide(
        self, squares: Mapping[str, Floats], share: float
    ) -> tuple[dict[str, float], dict[str, float]]:
        """What part of A_l each layer keeps for trails, and how much less eb² their sites get.

        With a part c for the trail and 1 − c for its own code a layer saves log(1 − c) bits an
        element and the BatchNorm log c: best at c in proportion to the elements, or less if less
        is needed.
        """
        kept, scale = dict.fromkeys(self.limits, 0.0), dict.fromkeys(self.sites, 1.0)
        home = {layer: site for site in self.sites.values() for layer in site.limits}
        for layer, limit in self.limits.items():
            if not limit.tolerance > 0:
                continue
            from_ = [s for s, to in self.trails if to == layer and s in squares]
            need = [_trail(self.trails[s, layer], squares[s]) / limit.tolerance for s in from_]
            total = sum(n for n in need if np.isfinite(n))
            if not total > 0:
                continue
            above = sum(self.sites[s].elements for s in from_)
            best = (1 - share) * above / (above + home[layer].elements)
            kept[layer] = min(total, best)
            for s in from_:
                scale[s] = min(scale[s], kept[layer] / total)
        return kept, scale

    # -- noise that travels ----------------------------------------------------------------

    def _is_noisy(self, site: BoundedSite) -> bool:
        found = (site.coefficients(v.reading, self.worst)[1] for v in site.limits.values())
        return any((t > 0).any() for t in found)

    def _limited(self, squares: Mapping[str, Floats], share: float) -> dict[str, Floats]:
        """eb² such that no layer gets more travelling noise than its share."""
        caps = np.array([self._noise(site, squares[n]) for n, site in self.sites.items()])
        pairs = zip(self.sites.values(), self.noisy, strict=True)
        weights = np.array([float(site.elements) if noisy else 0.0 for site, noisy in pairs])
        rooms, reach = [self._rooms(share), self.ends], [self.reach, self.reach_ends]
        rho = fill(weights, caps, np.concatenate(rooms), np.concatenate(reach))
        return {
            name: self._travelling(site, squares[name], cap, part)
            for (name, site), cap, part in zip(self.sites.items(), caps, rho, strict=True)
        }

    def _rooms(self, share: float) -> Floats:
        """The relative noise that each layer tolerates."""
        pairs = ((share * v.tolerance, self.absorbs[layer]) for layer, v in self.limits.items())
        return np.array([part / takes if takes > 0 else np.inf for part, takes in pairs])

    def _used(self, squares: Mapping[str, Floats], share: float) -> dict[str, float]:
        """The part of A_l that trails and travelling noise take in fact, at most what they may."""
        kept, _ = self._divide(squares, share)
        rho = np.array([self._noise(site, squares[n]) for n, site in self.sites.items()])
        arrives = weighted(self.reach, rho)
        for (layer, limit), noise in zip(self.limits.items(), arrives, strict=True):
            if limit.tolerance > 0:
                kept[layer] += min(share, float(noise) * self.absorbs[layer] / limit.tolerance)
        return kept

    def _noise(self, site: BoundedSite, square: Floats) -> float:
        """ρ: the noise that such errors put into the gradients that travel on, relative to them."""
        total = 0.0
        for limit in site.limits.values():
            _, t = site.coefficients(limit.reading, self.worst)
            signal = float(limit.reading.input_signal)
            if (t > 0).any() and signal > 0:
                total = max(total, float(np.where(t > 0, square, 0.0) @ t) / signal)
        return total

    def _travelling(self, site: BoundedSite, square: Floats, cap: float, rho: float) -> Floats:
        """eb² that keeps ρ: own bounds made smaller, or, without any, each channel its share."""
        if cap == 0 or np.isinf(rho):
            return square
        if np.isfinite(cap):
            return square * min(1.0, rho / cap)
        found = square
        for limit in site.limits.values():
            _, t = site.coefficients(limit.reading, self.worst)
            allowed = rho * float(limit.reading.input_signal) / len(t)
            most = np.divide(allowed, t, out=np.full(len(t), np.inf), where=t > 0)
            found = np.minimum(found, most)
        return found


def _trail(h: Floats, square: Floats) -> float:
    """E‖Δg‖² that errors at a BatchNorm's input leave below; h is for a variance of 1."""
    if len(h) != len(square):
        h = np.full(len(square), h.sum() / len(square))
    return float((np.where(h > 0, square, 0.0) * h).sum()) / 3


def fill(weight: Floats, cap: Floats, room: Floats, reach: Floats) -> Floats:
    """ρ of each site: at most `cap`, and reach @ ρ at most `room`, such that Σ weight·log ρ is
    large and no ρ could be larger by itself.

    `reach` is (layers, sites): what a layer gets of a site's noise; `room` is inf for a layer
    that tolerates anything. With the numbers of elements as weights Σ weight·log ρ is the bits that
    are saved: a site of twice the elements saves twice the bytes by the same factor of noise.
    """
    limits = np.isfinite(room)
    room, reach = room[limits], reach[limits]
    limited = (reach > 0).any(0)
    rho, free = np.where(~limited & (weight > 0), cap, 0.0), limited & (weight > 0)
    toward = np.where(free, _fair(weight, cap, room, reach), 1.0)
    for _ in range(len(weight)):  # each round settles one site at least
        growth = reach @ np.where(free, toward, 0.0)
        left = np.maximum(room - weighted(reach, np.where(free, 0.0, rho)), 0.0)
        rate = np.divide(left, growth, out=np.full(len(room), np.inf), where=growth > 0)
        least = float(rate.min(initial=np.inf))
        capped = free & (cap <= least * toward)
        if capped.any():
            rho[capped] = cap[capped]
            free &= ~capped
        else:
            held = free & (reach[rate <= least] > 0).any(0)
            rho[held] = least * toward[held]
            free &= ~held
    return rho


def weighted(reach: Floats, rho: Floats) -> Floats:
    """reach @ rho, where a site that does not reach a layer may have infinite noise."""
    each: Floats = np.multiply(reach, rho, out=np.zeros_like(reach), where=reach > 0)
    total: Floats = each.sum(1)
    return total


def _fair(weight: Floats, cap: Floats, room: Floats, reach: Floats) -> Floats:
    """ρ that is nearly best: weight over the price of a site's noise in all layers it reaches.

    A layer's price rises in proportion to how far its room is exceeded and falls as far as it is
    not used, until both agree: the dual of a concave problem, as for shares of a network's links.
    """
    some = room > 0
    if not some.any() or not weight.any():
        return weight
    reach = reach / np.where(some, room, 1.0)[:, None]
    start = weight.sum() / some.sum()
    price = np.where(some, start, 0.0)
    closed = (reach[~some] > 0).any(0)  # a layer without room takes nothing of these
    for _ in range(_ROUNDS):
        cost = np.maximum(price @ reach, _CHEAPEST * start)
        rho = np.where(closed, 0.0, np.minimum(weight / cost, cap))
        price = price * (reach @ rho)
    return np.maximum(rho, _CHEAPEST * weight)
