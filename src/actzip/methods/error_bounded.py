"""A policy that gives each site an error bound, from what the layers that read it tolerate.

What AC-GC and COMET share: the method says how much error a layer's gradients tolerate, this says
what bound every stored tensor gets for it, and remembers it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from actzip.codecs import Bounded
from actzip.codecs.base import Codec
from actzip.control import bounds
from actzip.control.conservative_mean import middle
from actzip.control.distributed import strictest
from actzip.control.op import NORMS, Kind, channel_dim
from actzip.control.propagation import Propagation
from actzip.control.reading import Reading
from actzip.control.statistics import Statistics
from actzip.methods.base import Policy, Role, Site

Floats = NDArray[np.float64]

#: elements from which the entropy stage is worth its tables: for fewer, half a millisecond a tensor
#: that other codes need some ten microseconds for
ENTROPY_FROM = 1 << 15
_START = 1e-3  #: of the peak: the bound before backward has said anything
_GROWTH = 2.0  #: of the bounds of curved ops, from one look to the next
_EPS = 1e-5  #: what norms add to a variance


class ErrorBounded(Policy):
    """One strict bound per site, or one per channel of a BatchNorm's input."""

    worst = False  #: bounds for errors that conspire, not for what they are on average
    dense = False  #: the codes give zeros an error, too

    def __init__(self) -> None:
        self._statistics = Statistics()
        self._shapes: dict[str, tuple[int, bool]] = {}  # elements, and an error per channel?
        self._errors: dict[str, Floats] = {}
        self._looked_with: dict[str, Floats] = {}  # errors of curved ops' tensors in the last look
        self._made: dict[str, Bounded] = {}
        self._looking = False

    # -- what a method decides -------------------------------------------------------------

    @abstractmethod
    def reading(self, layer: str) -> Reading | None:
        """What the next steps are to be prepared for, from a layer's last readings."""

    @abstractmethod
    def tolerance(self, layer: str, reading: Reading) -> float:
        """‖Δg‖² that the gradients of a layer's parameters tolerate."""

    @property
    @abstractmethod
    def relative_tolerance(self) -> float:
        """‖Δg‖²/‖g‖² that parameters tolerate whose op stores nothing."""

    @abstractmethod
    def coded(self, site: Site, tensor: Tensor, dim: int, errors: Floats) -> Codec:
        """A codec that keeps these errors, one number or one per channel in dimension `dim`."""

    def is_bounded(self, site: Site) -> bool:
        """Whether the site is to have a bound: its op needs an error formula."""
        unread = site.name in self._statistics.missing
        return not unread and site.slot in site.op.errors

    # -- forward ---------------------------------------------------------------------------

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        if not self.is_bounded(site):
            return None
        self.remember_shape(site, tensor)
        dim = channel_dim(site.op, tensor.dim())
        errors = self._errors.get(site.name)
        if errors is None:
            errors = np.array([safe(tensor, site.op.kind)])
        elif len(errors) > 1 and (tensor.dim() < 2 or tensor.shape[dim] != len(errors)):
            errors = errors.min(keepdims=True)
        if self._looking and site.role is Role.NONLINEAR and site.op.kind not in NORMS:
            self._looked_with[site.name] = errors
        return self.coded(site, tensor, dim, errors)

    def remember_shape(self, site: Site, tensor: Tensor) -> None:
        """Backward will be looked at: what the tensor was is needed then."""
        # an op on gradients has only the safe bound: second derivatives cancel in sums, and how
        # noise grows by that is not in the model of noise that travels
        if self._looking and not site.order:
            self._shapes[site.name] = (tensor.numel(), site.op.kind is Kind.BATCH_NORM)

    def reason(self, site: Site) -> str:
        return f"there is no error formula for {site.node}.{site.slot}: kept exactly"

    def bounded(
        self, site: Site, dim: int, errors: Floats, entropy: bool, predict: str | None = None
    ) -> Bounded:
        """The strict codec of these errors; the same object until they change."""
        error = tuple(errors.tolist()) if len(errors) > 1 else float(errors[0])
        made = self._made.get(site.name)
        wanted = (error, dim, entropy, predict)
        if made is None or (made.error, made.channel_dim, made.entropy, made.predict) != wanted:
            made = Bounded(error, channel_dim=dim, entropy=entropy, predict=predict)
            self._made[site.name] = made
        return made

    # -- what backward said ----------------------------------------------------------------

    def learn(self) -> None:
        """New bounds for all sites that were read."""
        sites = self._sites()
        if not sites:
            return
        layers = self._statistics.layers
        readings = {layer: v.reading for site in sites.values() for layer, v in site.limits.items()}
        propagation = Propagation(layers.routes, readings)
        trails = {key: middle(rows) for key, rows in layers.trails().items()}
        found = bounds.cheapest(sites, trails, propagation, self.worst, self.relative_tolerance)
        self._near(found)
        self._errors.update(strictest(found) if self._statistics.together else found)

    def _near(self, found: dict[str, Floats]) -> None:
        """How an error bends a gradient is known for errors of about the size that values had when
        they were looked at: where all an ELU reads is positive its slope is 1 for small ones only.
        """
        for name, errors in self._looked_with.items():
            if name in found:
                found[name] = np.minimum(found[name], _GROWTH * errors.max())
        self._looked_with.clear()

    def _sites(self) -> dict[str, bounds.BoundedSite]:
        """Every site with the layers that read it, and what these tolerate."""
        layers = self._statistics.layers
        limits: dict[str, dict[str, bounds.Limit]] = {}
        for layer in layers:
            reading = self.reading(layer)
            if reading is not None:
                limit = bounds.Limit(reading, self.tolerance(layer, reading))
                limits.setdefault(layers.site(layer), {})[layer] = limit
        return {
            site: bounds.BoundedSite(limits[site], *self._shapes[site], self.dense)
            for site in self._statistics.sites
            if site in limits and site in self._shapes
        }

    # -- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {
            "shapes": dict(self._shapes),
            "errors": {name: e.tolist() for name, e in self._errors.items()},
            "looked_with": {name: e.tolist() for name, e in self._looked_with.items()},
            "looking": self._looking,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._shapes = dict(state["shapes"])
        self._errors = {name: np.array(e) for name, e in state["errors"].items()}
        looked_with = state.get("looked_with", {})
        self._looked_with = {name: np.array(e) for name, e in looked_with.items()}
        self._looking = bool(state["looking"])


def is_worth_entropy(tensor: Tensor) -> bool:
    return tensor.numel() >= ENTROPY_FROM


def safe(tensor: Tensor, kind: Kind = Kind.OTHER) -> float:
    """A bound that does no harm, for a tensor of which nothing is known: a part of its peak, and
    of the least deviation that a norm divides by."""
    peak = float(tensor.detach().abs().amax()) if tensor.numel() else 0.0
    if kind in NORMS and tensor.dim() > 1 and 0 < peak < math.inf:
        peak = min(peak, _least_deviation(tensor.detach(), kind))
    return peak * _START if 0 < peak * _START < math.inf else _START


def _least_deviation(tensor: Tensor, kind: Kind) -> float:
    """Of what is normalised together, or of parts of it: groups and shapes are not known here."""
    places = [-1]
    if kind is not Kind.ROW_NORM:
        places = [d for d in range(tensor.dim()) if d > 1 or (d == 0 and kind is Kind.BATCH_NORM)]
    wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    return float(wide.var(places or [-1], unbiased=False).amin().add(_EPS).sqrt())
