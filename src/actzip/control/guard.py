"""Sees that training leaves its band, and says how much finer the codes must be.

Three signs: the gradients' error that the codes in use must be expected to make, as a fraction of
the gradients; the size of the gradients; the loss, where the user tells it. Precision is counted
in levels: each halves every error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

_RATE = 0.05  #: of the running means
_SHORT = 0.3  #: of the mean over the last few losses
_SEEN = 10  #: losses before there is a band
_WIDTH = 5.0  #: the band's half width, in mean deviations
_LEAST = 0.1  #: the band's half width at least, in parts of the loss
_PAUSE = 10  #: losses after an alarm before the next: new precision needs steps to show
_BLOWN = 1e4  #: growth of ‖g‖² from its running mean that no batch explains
_HIGHEST = 12  #: levels


@dataclass
class Guard:
    """Levels of precision, raised when training leaves its band."""

    limit: float = 1.0  #: of ‖Δg‖²/‖g‖²: at 1 there is as much noise as gradient
    raised: int = 0  #: levels because of losses or gradients; they stay
    needed: int = 0  #: levels because of the error; they come and go with it
    middle: float = math.nan  #: running mean of the loss
    spread: float = 0.0  #: its running mean deviation
    recent: float = math.nan  #: mean of the last few losses
    seen: int = 0
    pause: int = 0
    size: float = math.nan  #: running mean of log ‖g‖²

    @property
    def level(self) -> int:
        return min(_HIGHEST, self.raised + self.needed)

    def error(self, relative: float) -> str | None:
        """The codes of a step must be expected to have made this ‖Δg‖²/‖g‖²; why, if too much."""
        # what it would be without levels: each takes a factor of 4 from a squared error
        plain = relative * 4.0**self.level
        before, self.needed = self.needed, 0
        bare = plain / 4.0**self.raised
        if bare > self.limit:
            self.needed = min(_HIGHEST, math.ceil(math.log(bare / self.limit, 4) - 1e-9))
        if self.needed <= before:
            return None
        return (
            f"the codes make errors of {relative:.3g} times the squared gradients, "
            f"{self.limit:g} is allowed"
        )

    def gradients(self, energy: float) -> str | None:
        """‖g‖² of a step; why, if it has blown up."""
        if not math.isfinite(energy):
            return self._alarm("the gradients are not finite")
        if energy <= 0:
            return None
        size, known = math.log(energy), self.size
        if not math.isnan(known) and size > known + math.log(_BLOWN):
            growth = math.exp((size - known) / 2)
            return self._alarm(f"the gradients have grown to {growth:.0f} times their usual size")
        self.size = size if math.isnan(known) else known + 0.2 * (size - known)
        return None

    def loss(self, value: float) -> str | None:
        """The loss of a step; why, if it has left its band."""
        self.pause = max(0, self.pause - 1)
        if not math.isfinite(value):
            return self._alarm(f"the loss is {value}")
        if self.seen == 0:
            self.middle = self.recent = value
        self.recent += _SHORT * (value - self.recent)
        band = self.middle + max(_WIDTH * self.spread, _LEAST * abs(self.middle))
        if self.seen >= _SEEN and self.recent > band:
            said = f"the loss is {self.recent:.4g}, its band ends at {band:.4g}"
            self.recent = self.middle  # the next alarm needs new losses
            return self._alarm(said)  # the band stays: it must not follow what it warns of
        self.seen += 1
        rate = max(_RATE, 1 / self.seen)
        self.spread += rate * (abs(value - self.middle) - self.spread)
        self.middle += rate * (value - self.middle)
        return None

    def _alarm(self, why: str) -> str | None:
        if self.pause or self.level >= _HIGHEST:
            return None
        self.raised += 1
        self.pause = _PAUSE
        return why

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
