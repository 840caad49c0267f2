"""auto at work: a code for each tensor, and at every look new steps for all of them."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from actzip.codecs import Bounded, Group
from actzip.codecs.base import Codec
from actzip.control import budget
from actzip.control.byte_account import ByteAccount
from actzip.control.distributed import strictest
from actzip.control.gradient_variance import PASSES, GradientVariance
from actzip.control.looks import Looks, known
from actzip.control.op import NORMS, Kind, channel_dim
from actzip.control.rate_curves import Curve, coder, curve_of
from actzip.control.statistics import Statistics
from actzip.memory.measure import size
from actzip.memory.step_peak import held
from actzip.methods.actnn import group_at
from actzip.methods.base import Derives, Policy, Role, Site
from actzip.methods.error_bounded import is_worth_entropy

Floats = NDArray[np.float64]

_LOSSY = Derives.NOTHING
_SAFE = 0.05  #: share of SGD's variance while a budget's bytes are not known
_LOOSER = 4.0  #: how many times its share a single layer may have
_START = 4  #: bits of a group code before backward has told anything
_UNTOLD = 8  #: bits where a formula could not be used: an attention with dropout, say
_COARSEST = 3.0  #: log2(step/size): beyond, noise grows and no byte is saved
#: The same of curved ops: their formulas are of first order, and a bias of order step² does not
#: average out.
_CURVED = 0.0
_LONGER = 1.1  #: times the elements of the last look: codes get coarser to stay within a budget
_EARLY = 3  #: looks from which the variances are trusted; before, half the noise is aimed at


class Asked(Protocol):
    """What the user asked for; one of the first three."""

    @property
    def share(self) -> float | None: ...
    @property
    def ratio(self) -> float | None: ...
    @property
    def budget(self) -> int | str | None: ...
    @property
    def nbytes(self) -> int | None: ...
    def check(self, weights: int) -> None: ...


class AutoPolicy(Policy):
    """A step for each site, solved for anew at every look."""

    history = 4
    derives = _LOSSY

    def __init__(self, method: Asked):
        self._method = method
        self._statistics = Statistics()
        self._variance = GradientVariance()
        self._looks = Looks(self.history)
        self._curves: dict[str, Curve] = {}
        self._errors: dict[str, Floats] = {}  # half a step, of the tensor or of each channel
        self._made: dict[str, Bounded] = {}
        self._watching = False
        self._asked: int | None = None  # the pass that is looked at, until those behind it are over
        self._next = 0  # the next look
        self._predicted = 0.0  # share of V
        self._account = ByteAccount()
        self._exactly = False  # a budget with room for all tensors as they are
        self._unknown: set[str] = set()
        self._said: list[str] = []
        self._told: set[str] = set()

    def attach(self, model: nn.Module) -> None:
        self._variance.of(model.parameters())
        if self._method.budget is not None:
            self._method.check(held([*model.parameters(), *model.buffers()]))

    def stop(self) -> None:
        self._variance.stop()

    # -- forward: a codec for each tensor --------------------------------------------------

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        if site.slot not in site.op.errors:
            self._unknown.add(f"{site.node}.{site.slot}")
            return None
        if self._watching:
            self._look(site, tensor)
        if self._exactly:
            return None
        group = group_at(site, tensor, 256)
        if site.name in self._statistics.missing:
            return Group(_UNTOLD, group, zero=site.relu)
        errors = self._errors.get(site.name)
        if errors is None:
            return Group(_START, group, zero=site.relu)
        if self._method.budget is not None:
            errors = self._within(site.name, tensor, errors)
        dim = channel_dim(site.op, tensor.dim())
        if len(errors) > 1 and (tensor.dim() < 2 or tensor.shape[dim] != len(errors)):
            errors = errors.min(keepdims=True)
        return self._coded(site.name, dim, errors, is_worth_entropy(tensor))

    def _within(self, name: str, tensor: Tensor, errors: Floats) -> Floats:
        """Errors that keep a tensor which is larger than those looked at within its bytes."""
        curve = self._curves.get(name)
        if curve is None or tensor.numel() <= _LONGER * curve.elements:
            return errors
        self._say(
            "longer",
            f"{name} has {tensor.numel()} elements, up to now it had {curve.elements}: to stay "
            f"within budget={self._method.budget!r} codes of such passes are coarser, and the "
            "gradients noisier",
        )
        step = 2 * _step(errors, curve)
        found: Floats = errors * (curve.coarser(step, tensor.numel()) / step)
        return found

    def _coded(self, name: str, dim: int, errors: Floats, entropy: bool) -> Bounded:
        """The code of these steps; the same object until they change."""
        error = tuple(errors.tolist()) if len(errors) > 1 else float(errors[0])
        made = self._made.get(name)
        wanted = (error, dim, entropy)
        if made is None or (made.error, made.channel_dim, made.entropy) != wanted:
            made = self._made[name] = coder(error, dim, entropy)
        return made

    def _look(self, site: Site, tensor: Tensor) -> None:
        """Measure the bits that the tensor takes at each step."""
        by_channel = site.op.kind is Kind.BATCH_NORM and tensor.dim() > 1
        dim = channel_dim(site.op, tensor.dim()) if by_channel else None
        before, errors = self._curves.get(site.name), self._errors.get(site.name)
        coarsest = _CURVED if _is_curved(site) else _COARSEST
        direction = None if before is None else before.direction
        entropy = is_worth_entropy(tensor)
        curve = self._curves[site.name] = curve_of(tensor, entropy, coarsest, dim, direction)
        if errors is None:
            coded = tensor.numel() * (_START / 8 + 4 / group_at(site, tensor, 256))
        else:
            coded = curve.bytes_at(2 * _step(errors, curve))
        self._account.expect(coded, tensor.numel() * tensor.element_size())

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
            self._account.begin()
        after = self._asked is not None and step == self._asked + 1
        self.wants_peak = self._method.budget is not None and after
        self._variance.begin(self._asked is not None)
        return self._watching

    def passed(self, raw: int, stored: int) -> None:
        self._account.close(raw, stored, counted=self._watching and not self._exactly)

    def peaked(self, peak: int) -> None:
        self._account.peaked(peak)
        budget = self._method.nbytes
        if self._exactly and budget is not None and peak > budget:
            self._exactly, self.derives = False, _LOSSY
            self._say(
                "exact",
                f"a pass took {size(peak)}: budget={self._method.budget!r} has no room any more "
                "for tensors as they are; from now on they are coded",
            )

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
        self._errors.update(strictest(found) if together else found)

    def _solved(self, asked: int) -> dict[str, Floats]:
        variances, energy = self._variance.result()
        if not energy:
            energy = _signal(self._statistics, asked)
        if not 0 < energy < math.inf:
            return {}  # an overflow, or a pass without a backward
        self._looks.add(asked, energy, variances, self._predicted)
        now = known(self._statistics.layers, self._looks, self._curves)
        if now is None:
            return {}
        plan = self._plan(now.problem)
        self._predicted = plan.noise
        steps = now.problem.unit * 2.0**plan.u
        found: dict[str, Floats] = {}
        for name, step in zip(now.sites, steps, strict=True):
            direction = now.directions[name]
            self._curves[name].direction = direction.tolist()
            found[name] = step / 2 * direction
        return found

    def _plan(self, problem: budget.Problem) -> budget.Plan:
        share, account = self._method.share, self._account
        if share is not None:
            early = len(self._looks.sizes) < _EARLY
            return budget.least_bytes(problem, share / 2 if early else share, _LOOSER)
        if self._method.ratio is not None:
            plan = budget.least_noise(problem, account.for_ratio(self._method.ratio), _LOOSER)
            if not plan.reached:
                least = account.raw / max(1.0, plan.bytes + account.rest)
                self._say(
                    "ratio",
                    f"ratio={self._method.ratio:g} cannot be reached here: with the coarsest codes "
                    f"that are safe the saved tensors get {least:.1f} times smaller; "
                    "session.report() says what is kept as it is",
                )
            return plan
        return self._for_budget(problem)

    def _for_budget(self, problem: budget.Problem) -> budget.Plan:
        account, nbytes = self._account, self._method.nbytes
        assert nbytes is not None
        if account.fits_exactly(nbytes) and "exact" not in self._told:
            self._exactly, self.derives = True, Derives.EXACT
        allowed = account.for_budget(nbytes)
        if allowed is None:  # no peak could be measured: as if nothing had been said
            self._say(
                "peak",
                f"budget={self._method.budget!r}: the peak of a pass could not be measured (is a "
                f"profiler running, is there a backward?); until it is, noise={_SAFE:g} is kept",
            )
            return budget.least_bytes(problem, _SAFE, _LOOSER)
        plan = budget.least_noise(problem, allowed, _LOOSER)
        if not plan.reached:
            largest = sorted(self._curves, key=lambda s: -self._curves[s].elements)[:3]
            modules = list(dict.fromkeys(name.partition(":")[0] or "the model" for name in largest))
            self._say(
                "budget",
                f"budget={self._method.budget!r} cannot be met: with the coarsest codes that are "
                f"safe a pass takes {size(account.peak(plan.bytes))}, of which "
                f"{size(account.besides or 0)} are not saved tensors but weights, gradients, "
                "optimizer and what ops need while they run. A smaller batch helps, or "
                f"torch.utils.checkpoint around {', '.join(modules)}",
            )
        return plan

    def _say(self, what: str, message: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._said.append(message)

    def messages(self) -> list[str]:
        said, self._said = self._said, []
        return said

    def metrics(self) -> dict[str, float]:
        return {"noise_predicted": self._predicted} if self._looks.sizes else {}

    def summary(self) -> list[str]:
        if self._exactly:
            return ["gradient noise: none, the budget has room for exact tensors"]
        if not self._looks.sizes:
            return [f"gradient noise: not known yet, group codes of {_START} bits"]
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
            "curves": {name: dict(vars(curve)) for name, curve in self._curves.items()},
            "errors": {name: e.tolist() for name, e in self._errors.items()},
            **{name: getattr(self, "_" + name) for name in _PLAIN},
            "wants_peak": self.wants_peak,
            "account": dict(vars(self._account)),
            "told": sorted(self._told),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._variance.load_state_dict(state["variance"])
        self._looks.load_state_dict(state["looks"])
        self._curves = {name: Curve(**curve) for name, curve in state["curves"].items()}
        self._errors = {name: np.array(e) for name, e in state["errors"].items()}
        for name in _PLAIN:
            setattr(self, "_" + name, state[name])
        self._account = ByteAccount(**state["account"])
        self._told = set(state["told"])
        self.derives = Derives.EXACT if self._exactly else _LOSSY
        self.wants_peak = state["wants_peak"]


_PLAIN = ("watching", "asked", "next", "predicted", "exactly")


def _step(errors: Floats, curve: Curve) -> float:
    """Half of t, of which channel c has t·direction[c]."""
    same = len(errors) == len(curve.direction)
    return float(np.mean(errors / np.array(curve.direction if same else [1.0])))


def _signal(statistics: Statistics, step: int) -> float:
    """‖g‖² of the parameters whose layers told of this pass."""
    layers = statistics.layers
    rows = (r for layer in layers for at, r in layers.readings(layer) if at == step)
    return sum(float(r.parameter_signal) for r in rows)


def next_look(step: int) -> int:
    """Looks become rarer as the network changes less: 26 in the first 1000 steps, then 1 in 200."""
    return step + (200 if step >= 1000 else max(PASSES, step // 4))


def _is_curved(site: Site) -> bool:
    return site.role is Role.NONLINEAR and site.op.kind not in NORMS
