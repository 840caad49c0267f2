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
from dataclasses import dataclass

import torch

from actzip.memory.measure import size
from actzip.memory.sizes import read_bytes
from actzip.methods.auto_policy import AutoPolicy
from actzip.methods.base import Method, Policy

NOISE = 0.05  #: what is asked for when nothing is; it could not be seen in any accuracy so far


@dataclass(frozen=True)
class Auto(Method):
    """The fewest bytes for a share of the gradient's own noise, or the least noise for the bytes.

    noise   variance that codes add to the gradient, as a share of the variance that SGD gives it,
            in total; each layer stays within six times that share of its own
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

        if self.budget is not None:
            read_bytes(self.budget)  # says what is wrong with it

    def start(self, optimizer: torch.optim.Optimizer | None) -> Policy:
        return AutoPolicy(self)

    def check(self, weights: int) -> None:
        """A ValueError when the weights alone take more than the budget."""
        if self.nbytes is not None and self.nbytes <= weights:
            raise ValueError(
                f"budget={self.budget!r} is for the peak of a whole training step, and the weights "
                f"alone take {size(weights)}; gradients and the optimizer's state come on top. "
                "Raise it, train a smaller model, or give ratio=… for the saved tensors alone"
            )

    @property
    def nbytes(self) -> int | None:
        return None if self.budget is None else read_bytes(self.budget)

    @property
    def share(self) -> float | None:
        """The noise that is aimed at; None when it follows from bytes."""
        asked = self.ratio is not None or self.budget is not None
        return None if asked else (self.noise if self.noise is not None else NOISE)


def _is_number(value: object, above: float) -> bool:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return plain and above < value < math.inf  # type: ignore[operator]
