"""What auto solves for: a share of the gradient's noise, a ratio, or a budget in bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from actzip.control import budget
from actzip.control.byte_account import ByteAccount
from actzip.control.rate_curves import Curve
from actzip.memory.measure import size

_SAFE = 0.05  #: share of SGD's variance while a budget's bytes are not known
#: How many times its share a single layer may have. With 4 it is BatchNorms' and LayerNorms' few
#: parameters that limit a ResNet-20 and a decoder: 1.5 and 3 % more bytes for the same total. The
#: worst layers had 12 and 30 times theirs with ActNN.
_LOOSER = 6.0
_MOST = 1.0  #: share of SGD's variance, as a batch half as large has: with more, training suffers


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


class Goal:
    """A plan for what was asked for, and what the user should know of it."""

    def __init__(self, asked: Asked):
        self._asked = asked
        self.account = ByteAccount()
        self.exactly = False  #: a budget with room for all tensors as they are
        self.told: set[str] = set()  #: what was said once
        self._said: list[str] = []

    def plan(
        self, problem: budget.Problem, early: bool, curves: Mapping[str, Curve]
    ) -> budget.Plan:
        """Steps for the problem; `early`: the variances are not to be trusted yet."""
        asked, account = self._asked, self.account
        if asked.share is not None:
            share = asked.share / 2 if early else asked.share
            return budget.least_bytes(problem, share, _LOOSER)
        if asked.ratio is None:
            return self._for_budget(problem, curves)
        plan = _least_noise(problem, account.for_ratio(asked.ratio))
        if not plan.reached:
            least = account.raw / max(1.0, plan.bytes + account.rest)
            self.say(
                "ratio",
                f"ratio={asked.ratio:g} cannot be reached here: with the coarsest codes that are "
                f"safe the saved tensors get {least:.1f} times smaller; session.report() says what "
                "is kept as it is",
            )
        return plan

    def _for_budget(self, problem: budget.Problem, curves: Mapping[str, Curve]) -> budget.Plan:
        account, nbytes, asked = self.account, self._asked.nbytes, self._asked.budget
        assert nbytes is not None, "one of noise, ratio and budget is asked for"
        if account.fits_exactly(nbytes) and "exact" not in self.told:
            self.exactly = True
        allowed = account.for_budget(nbytes)
        if allowed is None:  # no peak could be measured: as if nothing had been said
            self.say(
                "peak",
                f"budget={asked!r}: the peak of a pass could not be measured (is a profiler "
                f"running, is there a backward?); until it is, noise={_SAFE:g} is kept",
            )
            return budget.least_bytes(problem, _SAFE, _LOOSER)
        plan = _least_noise(problem, allowed)
        if not plan.reached:
            largest = sorted(curves, key=lambda s: -curves[s].elements)[:3]
            modules = list(dict.fromkeys(name.partition(":")[0] or "the model" for name in largest))
            self.say(
                "budget",
                f"budget={asked!r} cannot be met: with the coarsest codes that are safe a pass "
                f"takes {size(account.peak(plan.bytes))}, of which {size(account.besides or 0)} "
                "are not saved tensors but weights, gradients, optimizer and what ops need while "
                f"they run. A smaller batch helps, or torch.utils.checkpoint around "
                f"{', '.join(modules)}",
            )
        return plan

    def peaked(self, peak: int) -> None:
        """Tensors held so many bytes at the peak of the last pass."""
        self.account.peaked(peak)
        nbytes = self._asked.nbytes
        if self.exactly and nbytes is not None and peak > nbytes:
            self.exactly = False
            self.say(
                "exact",
                f"a pass took {size(peak)}: budget={self._asked.budget!r} has no room any more "
                "for tensors as they are; from now on they are coded",
            )

    def longer(self, name: str, now: int, before: int) -> None:
        """A tensor is larger than at the last look."""
        self.say(
            "longer",
            f"{name} has {now} elements, up to now it had {before}: to stay within "
            f"budget={self._asked.budget!r} codes of such passes are coarser, and the gradients "
            "noisier",
        )

    def say(self, what: str, message: str) -> None:
        if what not in self.told:
            self.told.add(what)
            self._said.append(message)

    def messages(self) -> list[str]:
        said, self._said = self._said, []
        return said


def _least_noise(problem: budget.Problem, nbytes: float) -> budget.Plan:
    """The least noise for so many bytes; more bytes if it would be too much to train with."""
    plan = budget.least_noise(problem, nbytes, _LOOSER)
    if plan.noise <= _MOST:
        return plan
    coarsest = budget.least_bytes(problem, _MOST, _LOOSER)
    return dataclasses.replace(coarsest, reached=False)
