"""A method under guard: when training leaves its band its codes get finer, and it goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from actzip import checks
from actzip.codecs.base import Codec
from actzip.control.guard import Guard
from actzip.control.propagation import Effect, effects, nonzero
from actzip.control.schedule import INTERVAL, gap
from actzip.control.statistics import Statistics
from actzip.methods.base import Method, Policy, Site

_SAMPLE = 1 << 20  #: elements that a code's variance is taken from
_PASSES = 3  #: between looks, where the method looks at fewer than all: as `auto` does at first


@dataclass(frozen=True)
class Guarded(Method):
    """Another method, watched.

    limit     highest expected ‖Δg‖²/‖g‖² before codes get finer
    interval  steps between two looks at the gradients, the method's own ones among them; more often
              during the first ones
    """

    method: Method
    limit: float = 1.0
    interval: int = INTERVAL

    def __post_init__(self) -> None:
        if not isinstance(self.method, Method):
            raise ValueError(f"Guarded(method=…) is a method object, got {self.method!r}")
        checks.positive(self, "limit")
        checks.whole(self, "interval", least=1)

    def start(self, optimizer: torch.optim.Optimizer | None) -> Policy:
        return _Policy(self, self.method.start(optimizer))


class _Policy(Policy):
    def __init__(self, method: Guarded, inner: Policy):
        self._interval = method.interval
        self._inner = inner
        self._guard = Guard(method.limit)
        self._variances: dict[str, float] = {}  # of the codes of the pass that is looked at
        self._looking = False
        self._step = 0
        self._next = 0  # the next look, if the method has not looked by then
        self._said: list[str] = []
        self.history, self.slice_bytes, self.swap = inner.history, inner.slice_bytes, inner.swap
        self.derives, self.decodes_once = inner.derives, inner.decodes_once

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        return self._finer(site, tensor, self._inner.codec(site, tensor))

    def sign_exact(self, site: Site, tensor: Tensor, origins: tuple[float, ...]) -> Codec | None:
        return self._finer(site, tensor, self._inner.sign_exact(site, tensor, origins))

    def untold(self, site: Site, tensor: Tensor) -> Codec | None:
        return self._finer(site, tensor, self._inner.untold(site, tensor))

    def rectifies(self, site: str) -> None:
        self._inner.rectifies(site)

    @property
    def rectified(self) -> Collection[str]:  # type: ignore[override]
        return self._inner.rectified

    def _finer(self, site: Site, tensor: Tensor, picked: Codec | None) -> Codec | None:
        if picked is None:
            return None
        code = picked.finer(self._guard.level)
        if self._looking:
            self._variances[site.name] = variance(code, tensor)
        return code

    def attach(self, model: torch.nn.Module) -> None:
        self._inner.attach(model)

    def stop(self) -> None:
        self._inner.stop()

    def peaked(self, peak: int) -> None:
        self._inner.peaked(peak)

    def summary(self) -> list[str]:
        return self._inner.summary()

    def passed(self, raw: int, stored: int) -> None:
        self._inner.passed(raw, stored)

    def reason(self, site: Site) -> str:
        return self._inner.reason(site)

    def begin(self, step: int, statistics: Statistics) -> bool:
        if self._looking:
            self._judge(statistics)
        asked = self._inner.begin(step, statistics)
        self.wants_peak, self.derives = self._inner.wants_peak, self._inner.derives
        self._step = step
        self._looking = asked or self._is_due(step, statistics)
        if self._looking:
            self._next = step + max(gap(step, self._interval), min(_PASSES, self._interval))
        self._variances = {}
        return self._looking

    def wants(self, step: int, statistics: Statistics) -> bool:
        return self._inner.wants(step, statistics) or self._is_due(step, statistics)

    def _is_due(self, step: int, statistics: Statistics) -> bool:
        """Whether to look although the method does not, and will not before the look after it."""
        soon = range(step + gap(step, self._interval) - 1, step, -1)
        return step >= self._next and not any(
            self._inner.wants(later, statistics) for later in soon
        )

    def metrics(self) -> dict[str, float]:
        return {**self._inner.metrics(), "guard_level": self._guard.level}

    def watch(self, loss: float) -> None:
        self._say(lambda guard: guard.loss(loss))

    def _judge(self, statistics: Statistics) -> None:
        found = effects(statistics.layers, self._variances)
        signal = sum(float(e.reading.parameter_signal) for each in found.values() for e in each)
        if self._step != statistics.newest or not signal > 0:
            return
        error = expected(found, self._variances)
        # the gradients have the error in them: ‖ĝ‖² is about ‖g‖² + ‖Δg‖²
        clean = max(signal - error, signal / 100)
        self._say(lambda guard: guard.error(error / clean))
        self._say(lambda guard: guard.gradients(signal))

    def _say(self, ask: Callable[[Guard], str | None]) -> None:
        before = self._guard.level
        why = ask(self._guard)
        if why is not None and self._guard.level > before:
            factor = 2 ** (self._guard.level - before)
            self._said.append(
                f"step {self._step}: {why}; from now on errors are {factor} times smaller "
                f"(level {self._guard.level})"
            )

    def messages(self) -> list[str]:
        said, self._said = self._said, []
        return [*self._inner.messages(), *said]

    def state_dict(self) -> dict[str, Any]:
        return {
            "inner": self._inner.state_dict(),
            "guard": self._guard.state_dict(),
            "variances": dict(self._variances),
            "looking": self._looking,
            "step": self._step,
            "next": self._next,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._inner.load_state_dict(state["inner"])
        self._guard.load_state_dict(state["guard"])
        self._variances, self._looking = dict(state["variances"]), state["looking"]
        self._step, self._next = state["step"], state["next"]


def variance(codec: Codec, tensor: Tensor) -> float:
    """Mean error variance of a code on this tensor, from its first samples; 0 if unknown."""
    rows = tensor.shape[0] if tensor.dim() > 0 else 1
    some = max(1, min(rows, _SAMPLE * rows // max(1, tensor.numel())))
    part = tensor.detach()[:some] if tensor.dim() > 0 else tensor.detach()
    # the weights of a code with several errors are in parts of that of the even one (observe.py)
    found = codec.part(0, some).even().variance(part)
    return 0.0 if found is None or not math.isfinite(found) else found


def expected(found: Mapping[str, list[Effect]], variances: Mapping[str, float]) -> float:
    """E‖Δg‖² of all parameters for codes of these variances, by site."""
    # a variance is a mean over all elements, the weights are of those that are not zero
    return sum(
        variances[site] * effect.even_weight() / nonzero(effect.reading)
        for site, each in found.items()
        for effect in each
    )
