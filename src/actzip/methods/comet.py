"""COMET (VLDB 2022): strict error bounds on convolution inputs, from the optimizer's momentum.

A gradient may be noisy as long as the noise is small beside the momentum that smooths it. For each
layer the standard deviation that the code of its input adds to one element of gW shall be

    σ = sigma·mean|momentum|.

A dithered error within ±eb has the variance eb²/3, and E‖ΔgW‖² = eb²/3·Σ w (control/error.py), so

    eb = σ·√(3·count/Σ w)          count: elements of gW       (model="exact")
    eb = σ/(a·L̄·√(N·Rₙ))          a = 0.32                    (model="paper")

L̄ is the mean over the N samples of max|gY|, Rₙ the part of the input that is not zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from actzip import checks
from actzip.codecs import Bounded, Group, Keep
from actzip.codecs.base import Codec
from actzip.codecs.verified import Verified
from actzip.control.momentum import Momentum
from actzip.control.op import Kind
from actzip.control.reading import Reading
from actzip.control.schedule import INTERVAL, gap
from actzip.control.statistics import Statistics
from actzip.methods.base import Method, Policy, Role, Site
from actzip.methods.error_bounded import ErrorBounded, is_worth_entropy

Floats = NDArray[np.float64]

_A = 0.32  #: the paper's constant
#: What a running mean over ten gradients keeps of them at least: √((1 − 0.9)/(1 + 0.9)).
_RUNNING = math.sqrt(0.1 / 1.9)


@dataclass(frozen=True)
class Comet(Method):
    """|x − x̂| <= eb for every element, zeros stay zeros, eb per site from the momentum.

    sigma      noise of a gradient element, in parts of the mean |momentum| of its layer
    interval   steps between two looks at the gradients; halves while any bound moves more than
               twofold, to a quarter, 200 or a third of the steps so far, and comes back
    model      "exact", or "paper", which underestimates the noise 2 to 6 times
    scope      "conv": bounds for convolution inputs, everything else in `rest_bits` bits;
               "all": bounds for every op with an error formula
    warmup     "safe": a thousandth of each tensor's peak until backward has said something;
               "uncompressed", as published: nothing is compressed for the first `interval` steps
    entropy    entropy-code the integers
    predict    "lorenzo": in maps, code differences to the neighbours in two dimensions, as
               published; None: the integers themselves, a tenth more bytes at these bounds
    rest_bits  of the group code of what the scope leaves out; None keeps that exactly
    verify     decode each tensor at once and raise if any element breaks its bound

    Without a buffer of momentum in the optimizer a running mean of the gradient is assumed, as
    small as ten independent gradients would make it.
    """

    sigma: float = 0.01
    interval: int = 1000
    model: str = "exact"
    scope: str = "conv"
    warmup: str = "safe"
    entropy: bool = True
    predict: str | None = "lorenzo"
    rest_bits: int | None = 4
    verify: bool = False

    def __post_init__(self) -> None:
        checks.positive(self, "sigma")
        checks.whole(self, "interval", least=1)
        checks.one_of(self, "model", ("exact", "paper"))
        checks.one_of(self, "scope", ("conv", "all"))
        checks.one_of(self, "warmup", ("safe", "uncompressed"))
        checks.one_of(self, "predict", (None, "lorenzo"))
        checks.flag(self, "entropy", "verify")
        if self.rest_bits is not None:
            checks.whole(self, "rest_bits", least=1, most=8)

    def start(self, optimizer: torch.optim.Optimizer | None) -> Policy:
        return _Policy(self, Momentum(optimizer))


class _Policy(ErrorBounded):
    def __init__(self, method: Comet, momentum: Momentum):
        super().__init__()
        self._method = method
        self._momentum = momentum
        self._places: dict[str, int | None] = {}  # of each layer's weight, in the optimizer
        self._wait = method.interval if method.warmup == "uncompressed" else 1
        self._next = method.interval - 1 if method.warmup == "uncompressed" else 0

    # -- forward ---------------------------------------------------------------------------

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        if self._method.warmup == "uncompressed" and not self._errors:
            self.remember_shape(site, tensor)
            return Keep() if self._looking and self.is_bounded(site) else None
        if self.is_bounded(site):
            return super().codec(site, tensor)
        bits = self._method.rest_bits
        known = site.role is Role.LINEAR or super().is_bounded(site)
        if bits is None or not known or self._method.scope == "all":
            return None
        entropy = self._method.entropy and is_worth_entropy(tensor)
        return Group(bits, zero=site.relu and bits > 1, entropy=entropy)

    def is_bounded(self, site: Site) -> bool:
        conv = self._method.scope == "all" or site.op.kind is Kind.CONVOLUTION
        return conv and super().is_bounded(site)

    def reason(self, site: Site) -> str:
        if self._method.warmup == "uncompressed" and not self._errors:
            return f"COMET compresses after {self._method.interval} steps (warmup='uncompressed')"
        if self.is_bounded(site) or self._method.rest_bits is not None:
            return super().reason(site)
        return "COMET's scope is convolutions, and rest_bits=None keeps everything else exactly"

    def coded(self, site: Site, tensor: Tensor, dim: int, errors: Floats) -> Codec:
        m = self._method
        predict = m.predict if tensor.dim() > 3 else None  # rows of features are no neighbours
        entropy = m.entropy and is_worth_entropy(tensor)
        made: Bounded = self.bounded(site, dim, errors, entropy, predict)
        if not m.verify:
            return made
        return Verified(made.error, made.rounding, entropy, predict, dim, site=site.name)

    # -- what backward said ----------------------------------------------------------------

    def begin(self, step: int, statistics: Statistics) -> bool:
        self._statistics = statistics
        if self._looking:
            self._locate()
            before = dict(self._errors)
            self.learn()
            self._pace(before)
            # bounds that never settle are no reason to look all the time
            often = min(INTERVAL, -(-self._method.interval // 4))
            self._next = step - 1 + max(self._wait, gap(step - 1, often))
        self._looking = step >= self._next
        return self._looking

    def wants(self, step: int, statistics: Statistics) -> bool:
        # right after a look the pace is not known yet
        return step >= self._next and not self._looking

    def _pace(self, before: dict[str, Floats]) -> None:
        """Look twice as often while a bound moves more than twofold, else half as often."""
        moved = False
        for name, old in before.items():
            ratio = self._errors[name].mean() / old.mean()
            moved |= not 0.5 <= ratio <= 2
        faster, slower = max(1, self._wait // 2), min(self._method.interval, self._wait * 2)
        self._wait = faster if moved else slower

    def reading(self, layer: str) -> Reading | None:
        if self._method.scope == "conv" and not self._is_conv(layer):
            return None
        rows = self._statistics.layers.readings(layer)
        return rows[-1][1] if rows else None

    def tolerance(self, layer: str, reading: Reading) -> float:
        """σ²·count, E‖ΔgW‖² of noise with the deviation σ in each element."""
        count = max(1.0, float(reading.weight_count))
        sigma = self._method.sigma * self._size(layer, reading)
        if self._method.model == "paper" and self._is_conv(layer):
            bound = sigma / max(paper_sigma(reading, 1.0), 1e-300)
            return bound**2 * float(reading.parameter.sum()) / 3
        return sigma**2 * count

    @property
    def relative_tolerance(self) -> float:
        return (self._method.sigma * _RUNNING) ** 2

    def _is_conv(self, layer: str) -> bool:
        return self._statistics.layers.kind(layer) is Kind.CONVOLUTION

    def _size(self, layer: str, reading: Reading) -> float:
        """mean|momentum| of a layer's weight, or what a running mean of gradients has at least."""
        size = self._momentum.size(self._places.get(layer))
        if size is not None:
            return size
        count = max(1.0, float(reading.parameter_count))
        return _RUNNING * math.sqrt(float(reading.parameter_signal) / count)

    def _locate(self) -> None:
        layers = self._statistics.layers
        for layer in layers:
            held = layers.parameters(layer)
            if held:
                self._places[layer] = self._momentum.place(held)

    # -- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        self._locate()
        more = {"places": dict(self._places), "wait": self._wait, "next": self._next}
        return {**super().state_dict(), **more}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._places = dict(state["places"])
        self._wait, self._next = int(state["wait"]), int(state["next"])


def paper_sigma(r: Reading, eb: float) -> float:
    """Deviation of one element of gW by the paper's model: a·L̄·√(N·Rₙ)·eb."""
    kept = r.parameter.numel() * (1 - float(r.zeros))
    return _A * float(r.mean_peak_grad) * math.sqrt(kept) * eb
