"""auto: one budget of gradient noise for the whole network, spent where it saves most bytes.

Codes make the gradient noisier; SGD's gradient is noisy anyway, with the variance V. The user says
which share of V codes may add. With the step tᵢ site i has the error variance tᵢ²/12, and

    least Σ Bᵢ(tᵢ)   for   Σᵢ wᵢ·tᵢ²/12 <= noise·V,   and a few times that for each layer,

gives every site its step. wᵢ = E‖Δg‖² of all gradients for an error variance of 1 comes from the
formulas of control/ on the gradients of a pass that is looked at (control/contributions.py), V from
the gradients of three successive passes (control/gradient_variance.py), the bytes Bᵢ from coding a
sample of the tensor with several steps (control/rate_curves.py). The solver is control/budget.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from actzip.codecs import Bounded, Group
from actzip.codecs.base import Codec
from actzip.control import budget, rate_curves
from actzip.control.distributed import strictest
from actzip.control.gradient_variance import PASSES, GradientVariance
from actzip.control.looks import Looks, known
from actzip.control.op import NORMS, Kind, channel_dim
from actzip.control.rate_curves import Curve
from actzip.control.statistics import Statistics
from actzip.methods.actnn import group_at
from actzip.methods.base import Method, Policy, Role, Site
from actzip.methods.error_bounded import is_worth_entropy

Floats = NDArray[np.float64]

_NOISE = 0.05  #: what is asked for when nothing is; it could not be seen in any accuracy so far
_LOOSER = 4.0  #: how many times its share a single layer may have
_START = 4  #: bits of a group code before backward has told anything
_UNTOLD = 8  #: bits where a formula could not be used: an attention with dropout, say
_COARSEST = 3.0  #: log2(step/size): beyond, noise grows and no byte is saved
#: The same of curved ops: their formulas are of first order, and a bias of order step² does not
#: average out.
_CURVED = 0.0
_EARLY = 3  #: looks from which the variances are trusted; before, half the noise is aimed at
_TABLE = 160  #: bytes of a payload that do not grow with the tensor


@dataclass(frozen=True)
class Auto(Method):
    """The fewest bytes for a share of the gradient's own noise, or the least noise for the bytes.

    noise   variance that codes add to the gradient, as a share of the variance that SGD gives it,
            in total; each layer stays within four times that share of its own
    ratio   how many times smaller the saved tensors shall be
    budget  bytes that tensors may take at the peak of a step, or a text such as "6GiB"

    One of the three; noise=0.05 when none is given. Before backward has told anything every tensor
    has a group code of 4 bits. An op without an error formula is kept exactly.
    """

    noise: float | None = None
    ratio: float | None = None
    budget: int | str | None = None

    def __post_init__(self) -> None:
        given = [n for n in ("noise", "ratio", "budget") if getattr(self, n) is not None]
        if len(given) > 1:
            raise ValueError(
                f"Auto takes one of noise, ratio and budget, got {' and '.join(given)}: the others "
                "follow from it; leave all but one out"
            )
        if self.noise is not None and not _is_number(self.noise, above=0.0):
            raise ValueError(
                "Auto(noise=…) is a share of the gradient's variance above 0, such as 0.05, got "
                f"{self.noise!r}; for no noise at all take method='lossless'"
            )
        if self.ratio is not None and not (_is_number(self.ratio, above=0.0) and self.ratio >= 1):
            raise ValueError(
                "Auto(ratio=…) says how many times smaller saved tensors shall be, 1 or more, such "
                f"as 24, got {self.ratio!r}"
            )

    def start(self, optimizer: torch.optim.Optimizer | None) -> Policy:
        return _Policy(self)

    @property
    def share(self) -> float | None:
        """The noise that is aimed at; None when it follows from bytes."""
        asked = self.ratio is not None or self.budget is not None
        return None if asked else (self.noise if self.noise is not None else _NOISE)


class _Policy(Policy):
    """A step for each site, solved for anew at every look."""

    history = 4

    def __init__(self, method: Auto):
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
        self._expected = 0.0  # bytes of the codes of the pass that is looked at
        self._raw = self._rest = 0.0  # bytes of a pass, plain, and stored beside these codes
        self._said: list[str] = []
        self._told: set[str] = set()

    def attach(self, model: nn.Module) -> None:
        self._variance.of(model.parameters())

    def stop(self) -> None:
        self._variance.stop()

    # -- forward: a codec for each tensor --------------------------------------------------

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        if site.slot not in site.op.errors:
            return None
        size = group_at(site, tensor, 256)
        if site.name in self._statistics.missing:
            return Group(_UNTOLD, size, zero=site.relu)
        if self._watching:
            self._look(site, tensor)
        errors = self._errors.get(site.name)
        if errors is None:
            self._expected += tensor.numel() * (_START / 8 + 4 / size)
            return Group(_START, size, zero=site.relu)
        dim = channel_dim(site.op, tensor.dim())
        if len(errors) > 1 and (tensor.dim() < 2 or tensor.shape[dim] != len(errors)):
            errors = errors.min(keepdims=True)
        return self._coded(site.name, dim, errors, is_worth_entropy(tensor))

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
        dim = channel_dim(site.op, tensor.dim())
        before, errors = self._curves.get(site.name), self._errors.get(site.name)
        some = rate_curves.sample(tensor).float()
        direction = np.ones(1)
        if by_channel:
            some, direction = _levelled(some, dim, None if before is None else before.direction)
        some = some.contiguous().view(-1)
        size = rate_curves.spread(some)
        curve = Curve(
            elements=tensor.numel(),
            size=size,
            bits=_bits(some, size, tensor.numel(), is_worth_entropy(tensor)),
            coarsest=_CURVED if _is_curved(site) else _COARSEST,
            direction=direction.tolist(),
        )
        self._curves[site.name] = curve
        if errors is not None:
            self._expected += curve.bytes_at(2 * float(errors.mean() / direction.mean()))

    def reason(self, site: Site) -> str:
        return f"there is no error formula for {site.node}.{site.slot}: kept exactly"

    # -- passes ----------------------------------------------------------------------------

    def begin(self, step: int, statistics: Statistics) -> bool:
        self._statistics, statistics.by_layer = statistics, True
        if self._asked is not None and step == self._asked + 1:
            self._locate()
        if self._asked is not None and step >= self._asked + PASSES:
            asked, self._asked = self._asked, None
            self._learn(asked)
        self._watching = step >= self._next
        if self._watching:
            self._asked, self._next = step, next_look(step)
            self._expected = 0.0
        self._variance.begin(self._asked is not None)
        return self._watching

    def passed(self, raw: int, stored: int) -> None:
        if self._watching and raw:
            self._raw, self._rest = float(raw), stored - self._expected

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
        variances, size = self._variance.result()
        if not size:
            size = _signal(self._statistics, asked)
        if not 0 < size < math.inf:
            return {}  # an overflow, or a pass without a backward
        self._looks.add(asked, size, variances, self._predicted)
        now = known(self._statistics.layers, self._looks, self._curves)
        if now is None:
            return {}
        plan = self._plan(now.problem)
        self._predicted = plan.noise
        steps = now.problem.unit * 2.0**plan.u
        found = {}
        for name, step in zip(now.sites, steps, strict=True):
            direction = now.directions[name]
            self._curves[name].direction = direction.tolist()
            found[name] = step / 2 * direction
        return found

    def _plan(self, problem: budget.Problem) -> budget.Plan:
        share = self._method.share
        if share is not None:
            early = len(self._looks.sizes) < _EARLY
            return budget.least_bytes(problem, share / 2 if early else share, _LOOSER)
        assert self._method.ratio is not None
        plan = budget.least_noise(problem, self._raw / self._method.ratio - self._rest, _LOOSER)
        if not plan.reached:
            least = self._raw / max(1.0, plan.bytes + self._rest)
            self._say(
                "ratio",
                f"ratio={self._method.ratio:g} cannot be reached here: with the coarsest codes "
                f"that are safe the saved tensors get {least:.1f} times smaller; "
                "session.report() says what is kept as it is",
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

    # -- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        self._locate()
        return {
            "variance": self._variance.state_dict(),
            "looks": self._looks.state_dict(),
            "curves": {name: dict(vars(curve)) for name, curve in self._curves.items()},
            "errors": {name: e.tolist() for name, e in self._errors.items()},
            **{name: getattr(self, "_" + name) for name in _PLAIN},
            "told": sorted(self._told),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._variance.load_state_dict(state["variance"])
        self._looks.load_state_dict(state["looks"])
        self._curves = {name: Curve(**curve) for name, curve in state["curves"].items()}
        self._errors = {name: np.array(e) for name, e in state["errors"].items()}
        for name in _PLAIN:
            setattr(self, "_" + name, state[name])
        self._told = set(state["told"])


_PLAIN = ("watching", "asked", "next", "predicted", "expected", "raw", "rest")


def coder(error: float | tuple[float, ...], dim: int, entropy: bool) -> Bounded:
    """The code with these errors, half its steps."""
    return Bounded(error, channel_dim=dim, entropy=entropy)


def _bits(some: Tensor, size: float, elements: int, entropy: bool) -> list[float]:
    """Bits of an element at each step, by coding a sample of the tensor."""
    if not size > 0 or not some.numel():
        return [32.0] * len(rate_curves.GRID)
    fixed = _TABLE * (1 - min(1.0, some.numel() / elements))

    def bits(u: float) -> float:
        code = coder(size * 2.0**u / 2, 1, entropy)
        return 8 * max(1.0, code.encode(some, seed=1).data.numel() - fixed) / some.numel()

    return [float(b) for b in rate_curves.measure(bits)]


def _levelled(some: Tensor, dim: int, direction: Iterable[float] | None) -> tuple[Tensor, Floats]:
    """A sample in units of its channels' steps, and these beside each other."""
    rest = [d for d in range(some.dim()) if d != dim % some.dim()]
    around = [-1 if d == dim % some.dim() else 1 for d in range(some.dim())]
    found = np.array(list(direction or ()))
    if len(found) != some.shape[dim]:
        each = some.double().std(rest, correction=0).clamp(min=1e-30).cpu().numpy()
        found = each / np.exp(np.log(each).mean())
    centred = some - some.mean(rest, keepdim=True)
    return centred / torch.from_numpy(found).to(some).view(around), found


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


def _is_number(value: object, above: float) -> bool:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return plain and above < value < math.inf  # type: ignore[operator]
