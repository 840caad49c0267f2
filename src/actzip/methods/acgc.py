"""AC-GC (NeurIPS 2021): precision from a bound on the gradient's error, without a search.

If the squared error of the gradient is at most e²·‖g‖², the floor that SGD converges to grows by
at most 1 + e². The user gives e². For a convolution or a matmul with the input error |e| <= eb,

    E‖ΔgW‖² = eb²/3·Σ w,  w = ‖gY‖² of the outputs that an element feeds     (bound="variance")
    ‖ΔgW‖² <= eb²·N·H·W·C·u·‖gY‖²,  u = R·S/strides                         (bound="worst_case")

and eb is the largest that keeps each layer's share of e²·‖gW‖². Norms, activations and attention
pass their errors on: what layers below may get of these is part of their share (control/bounds.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from actzip import checks
from actzip.codecs import FixedPoint
from actzip.codecs.base import Codec
from actzip.control.conservative_mean import cautious, unlikely
from actzip.control.reading import Reading
from actzip.control.schedule import INTERVAL, is_look
from actzip.control.statistics import Statistics
from actzip.methods.base import Method, Policy, Site
from actzip.methods.error_bounded import ErrorBounded, is_worth_entropy

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ACGC(Method):
    """The relative squared error of the gradient stays within `e2`, per layer and in total.

    e2          allowed ‖Δg‖²/‖g‖²; the only number a user has to think of
    bound       "variance": what dithered errors add up to on average; "worst_case": what errors
                that conspire could, as published, some thousand times stricter
    codec       "bounded": entropy-coded integers of a strict error; "fixed": 2 to 16 bits per
                channel, as published
    skip_zeros  fixed codes are kept of the values that are not zero only, and a bitmap
    interval    steps between two looks at the gradients; more often during the first ones
    history     looks that a bound is made from
    safety      how many times the error may outgrow what three deviations among these looks allow
                for: looks are of steps that are over; small tensors get more

    Before the first backward every tensor is stored to a thousandth of its peak, a norm's input to
    one of the least deviation it divides by. A curved op without an error formula is kept exactly,
    and the report says so.
    """

    e2: float = 0.5
    bound: str = "variance"
    codec: str = "bounded"
    skip_zeros: bool = True
    interval: int = INTERVAL
    history: int = 10
    safety: float = 1.8
    entropy: bool = True

    def __post_init__(self) -> None:
        checks.positive(self, "e2", "safety")
        checks.one_of(self, "bound", ("variance", "worst_case"))
        checks.one_of(self, "codec", ("bounded", "fixed"))
        checks.whole(self, "interval", "history", least=1)
        checks.flag(self, "skip_zeros", "entropy")

    def start(self, optimizer: torch.optim.Optimizer | None) -> Policy:
        return _Policy(self)

    def tolerance(self, signal: float) -> float:
        """‖Δg‖² that a layer with ‖ĝ‖² = signal tolerates: e²·‖g‖².

        ĝ has its error in it: E‖ĝ‖² = ‖g‖² + E‖Δg‖², and at worst ‖ĝ‖ = (1 + e)·‖g‖.
        """
        if self.bound == "worst_case":
            return self.e2 / (1 + math.sqrt(self.e2)) ** 2 * signal
        aimed = self.e2 / self.safety
        return aimed / (1 + aimed) * signal


class _Policy(ErrorBounded):
    def __init__(self, method: ACGC):
        super().__init__()
        self._method = method
        self.history = method.history
        self.worst = method.bound == "worst_case"
        self.dense = method.codec == "fixed" and not method.skip_zeros

    def begin(self, step: int, statistics: Statistics) -> bool:
        self._statistics = statistics
        if self._looking:
            self.learn()
        self._looking = is_look(step, self._method.interval)
        return self._looking

    def wants(self, step: int, statistics: Statistics) -> bool:
        return is_look(step, self._method.interval)

    def reading(self, layer: str) -> Reading | None:
        rows = self._statistics.layers.readings(layer)
        return cautious(rows, min if self.worst else unlikely, self.worst)

    def tolerance(self, layer: str, reading: Reading) -> float:
        """More safety where it costs less, and where fewer numbers make an error.

        Of batches, the part whose error is more than f times what was expected falls as 1/f⁴
        (measured on ResNet-20), and a factor f costs bits in proportion to the elements n: least
        in all for f ~ n^-¼. What is expected is a mean: of k independent errors the sum of squares
        is beyond 1 + 3·√(2/k) of it in one of a thousand draws.
        """
        sizes = {site: elements for site, (elements, _) in self._shapes.items()}
        elements = sizes.get(self._statistics.layers.site(layer), 1)
        small = math.sqrt(math.sqrt(max(sizes.values(), default=1) / max(1, elements)))
        few = 1 + 3 * math.sqrt(2 / max(1.0, float(reading.weight_count)))
        return self._method.tolerance(float(reading.parameter_signal)) / (small * few)

    @property
    def relative_tolerance(self) -> float:
        return self._method.tolerance(1.0)

    def coded(self, site: Site, tensor: Tensor, dim: int, errors: Floats) -> Codec:
        m = self._method
        if m.codec == "fixed":
            return FixedPoint(fixed_bits(tensor, dim, errors), m.skip_zeros, channel_dim=dim)
        return self.bounded(site, dim, errors, m.entropy and is_worth_entropy(tensor))


def fixed_bits(tensor: Tensor, dim: int, errors: Floats) -> int | tuple[int, ...]:
    """2 to 16 bits for each channel, by its bound and its peak now: step = peak/(2^(b-1) - 1)."""
    if tensor.dim() < 2:
        peak = tensor.detach().abs().amax().double().cpu().view(1).numpy()
    else:
        rest = [d for d in range(tensor.dim()) if d != dim % tensor.dim()]
        peak = tensor.detach().abs().amax(rest).double().cpu().numpy()
    levels = np.nan_to_num(peak, nan=0.0, posinf=0.0) / (2 * errors)
    bits = np.clip(1 + np.ceil(np.log2(levels + 1)), 2, 16).astype(int)
    return int(bits[0]) if tensor.dim() < 2 else tuple(bits.tolist())
