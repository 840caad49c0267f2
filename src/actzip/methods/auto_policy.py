"""auto at work: a code for each tensor, and at every look new steps for all of them."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from actzip.codecs.base import Codec
from actzip.control.byte_account import ByteAccount
from actzip.control.distributed import strictest
from actzip.control.gradient_variance import PASSES, GradientVariance
from actzip.control.looks import Looks, known
from actzip.control.schedule import INTERVAL
from actzip.control.statistics import Statistics
from actzip.memory.step_peak import held
from actzip.methods.auto_codes import START, UNTOLD, Codes, Origins
from actzip.methods.auto_goal import Asked, Goal
from actzip.methods.base import Derives, Policy, Site

Floats = NDArray[np.float64]

_EARLY = 3  #: looks from which the variances are trusted; before, half the noise is aimed at


class AutoPolicy(Policy):
    """A step for each site, solved for anew at every look."""

    history = 4

    def __init__(self, method: Asked):
        self._method = method
        self.decodes_once = method.budget is None
        self._goal = Goal(method)
        self._codes = Codes()
        self._statistics = Statistics()
        self._variance = GradientVariance()
        self._looks = Looks(self.history)
        self._watching = False
        self._asked: int | None = None  # the pass that is looked at, until those behind it are over
        self._next = 0  # the next look
        self._predicted = 0.0  # share of V
        self._unknown: set[str] = set()

    @property
    def derives(self) -> Derives:  # type: ignore[override]
        return Derives.EXACT if self._goal.exactly else Derives.LOSSY

    @property
    def rectified(self) -> Collection[str]:  # type: ignore[override]
        return self._codes.rectified

    def attach(self, model: nn.Module) -> None:
        self._variance.of(model.parameters())
        if self._method.budget is not None:
            self._method.check(held([*model.parameters(), *model.buffers()]))

    def stop(self) -> None:
        self._variance.stop()

    # -- forward: a codec for each tensor --------------------------------------------------

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        return self._code(site, tensor, None)

    def sign_exact(self, site: Site, tensor: Tensor, origins: Origins) -> Codec | None:
        return self._code(site, tensor, origins)

    def untold(self, site: Site, tensor: Tensor) -> Codec | None:
        known = site.slot in site.op.errors and not self._goal.exactly
        bits = UNTOLD if site.name in self._codes.errors else START  # it may want more for itself
        return self._codes.start(site, tensor, bits) if known else None

    def rectifies(self, site: str) -> None:
        self._codes.rectified.add(site)

    def _code(self, site: Site, tensor: Tensor, origins: Origins | None) -> Codec | None:
        if site.slot not in site.op.errors:
            self._unknown.add(f"{site.node}.{site.slot}")
            return None
        if self._watching:
            coded = self._codes.look(site, tensor, origins)
            self._goal.account.expect(coded, tensor.numel() * tensor.element_size())
        if self._goal.exactly:
            return None
        if site.name in self._statistics.missing:
            return self._codes.start(site, tensor, UNTOLD)
        errors = self._codes.errors.get(site.name)
        if errors is None:
            return self._codes.start(site, tensor)
        if self._method.budget is not None:
            coarser = self._codes.coarser(site.name, tensor)
            if coarser is not None:
                before = self._codes.curves[site.name].elements
                self._goal.longer(site.name, tensor.numel(), before)
                errors = coarser
        return self._codes.code(site, tensor, errors, origins)

    def reason(self, site: Site) -> str:
        return f"there is no error formula for {site.node}.{site.slot}: kept exactly"

    # -- passes ----------------------------------------------------------------------------

    def begin(self, step: int, statistics: Statistics) -> bool:
        self._statistics = statistics
        if self._asked is not None and step == self._asked + 1:
            self._locate()
        if self._asked is not None and step >= self._asked + PASSES:
            asked, self._asked = self._asked, None
            self._learn(asked)
        self._watching = step >= self._next
        if self._watching:
            self._asked, self._next = step, next_look(step)
            self._goal.account.begin()
        after = self._asked is not None and step == self._asked + 1
        self.wants_peak = self._method.budget is not None and after
        self._variance.begin(self._asked is not None)
        return self._watching

    def wants(self, step: int, statistics: Statistics) -> bool:
        return step >= self._next

    def passed(self, raw: int, stored: int) -> None:
        counted = self._watching and not self._goal.exactly
        self._goal.account.close(raw, stored, counted=counted)

    def peaked(self, peak: int) -> None:
        self._goal.peaked(peak)

    def _locate(self) -> None:
        """Whose gradients each layer gives, by the parameters' places."""
        layers = self._statistics.layers
        if not self._variance.known:  # code around which there is no model
            self._variance.of(p for layer in layers for p in layers.parameters(layer))
        for layer in layers:
            held = (self._variance.place(p) for p in layers.parameters(layer))
            places = [place for place in held if place is not None]
            if places:  # a resumed run has not met them yet, and knows their places
                self._looks.places[layer] = places

    def _learn(self, asked: int) -> None:
        """New steps for all sites of which backward told."""
        together = self._statistics.together
        try:
            found = self._solved(asked)
        except Exception:
            if together:  # the others wait for this
                strictest({})
            raise
        self._codes.errors.update(strictest(found) if together else found)

    def _solved(self, asked: int) -> dict[str, Floats]:
        variances, energy = self._variance.result()
        if not energy:
            energy = _signal(self._statistics, asked)
        if not 0 < energy < math.inf:
            return {}  # an overflow, or a pass without a backward
        self._looks.add(asked, energy, variances, self._predicted)
        curves = self._codes.curves
        now = known(self._statistics.layers, self._looks, curves)
        if now is None:
            return {}
        plan = self._goal.plan(now.problem, len(self._looks.sizes) < _EARLY, curves)
        self._predicted = plan.noise
        steps = now.problem.unit * 2.0**plan.u
        found: dict[str, Floats] = {}
        for name, step in zip(now.sites, steps, strict=True):
            direction = now.directions[name]
            curves[name].direction = direction.tolist()
            found[name] = step / 2 * direction
        return found

    # -- what is told ----------------------------------------------------------------------

    def messages(self) -> list[str]:
        return self._goal.messages()

    def metrics(self) -> dict[str, float]:
        return {"noise_predicted": self._predicted} if self._looks.sizes else {}

    def summary(self) -> list[str]:
        if self._goal.exactly:
            return ["gradient noise: none, the budget has room for exact tensors"]
        if not self._looks.sizes:
            return [f"gradient noise: not known yet, group codes of {START} bits"]
        said = [
            f"gradient noise: {self._predicted:.2%} of SGD's variance predicted, by the look at "
            f"pass {max(self._looks.sizes)}"
        ]
        if self._unknown:
            said.append(f"kept exactly, no error formula: {', '.join(sorted(self._unknown))}")
        return said

    # -- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        self._locate()
        return {
            "variance": self._variance.state_dict(),
            "looks": self._looks.state_dict(),
            "codes": self._codes.state_dict(),
            **{name: getattr(self, "_" + name) for name in _PLAIN},
            "wants_peak": self.wants_peak,
            "account": dict(vars(self._goal.account)),
            "exactly": self._goal.exactly,
            "told": sorted(self._goal.told),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._variance.load_state_dict(state["variance"])
        self._looks.load_state_dict(state["looks"])
        self._codes.load_state_dict(state["codes"])
        for name in _PLAIN:
            setattr(self, "_" + name, state[name])
        self.wants_peak = state["wants_peak"]
        self._goal.account = ByteAccount(**state["account"])
        self._goal.exactly, self._goal.told = state["exactly"], set(state["told"])


_PLAIN = ("watching", "asked", "next", "predicted")


def _signal(statistics: Statistics, step: int) -> float:
    """‖g‖² of the parameters whose layers told of this pass."""
    layers = statistics.layers
    rows = (r for layer in layers for at, r in layers.readings(layer) if at == step)
    return sum(float(r.parameter_signal) for r in rows)


def next_look(step: int) -> int:
    """Looks become rarer as the network changes less: 25 in the first 1000 steps, then 1 in 200."""
    return step + min(INTERVAL, max(PASSES, step // 4))
