"""One op with a stored tensor in a code: the variance of its gradients, predicted and measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

import actzip
from actzip.autograd import slots
from actzip.codecs import Group
from actzip.codecs.base import Codec
from actzip.control.statistics import Reading, Statistics
from actzip.methods.base import Role, Site, Stateless

Run = Callable[..., Tensor]


def a_site(node: str, slot: str, role: Role, relu: bool = False) -> Site:
    """A site of the model itself, with what the table says of its op."""
    return Site("", node, slot, 0, role, relu, slots.op(node))


@dataclass(frozen=True)
class OneSite(Stateless):
    """A code at one slot (or, without a name, all slots) of a node; the first step is looked at."""

    node: str
    slot: str
    code: Codec
    seen: list[Tensor] = field(default_factory=list)

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        if site.node != self.node or self.slot not in ("", site.slot):
            return None
        self.seen[:] = [tensor.detach().clone()]
        return self.code

    def begin(self, step: int, statistics: Statistics) -> bool:
        return step == 0


@dataclass
class Outcome:
    """‖Δg‖² over the gradients of parameters, and over those of everything else."""

    parameter: float
    input: float
    predicted_parameter: float
    predicted_input: float
    worst_parameter: float
    worst_input: float
    bias: float  #: ‖E ĝ − g‖² in units of what the variance of the mean would show
    doubt: tuple[float, float]  #: relative standard error of the two that were measured
    reading: Reading

    def ratios(self) -> list[tuple[float, float]]:
        """Measured over predicted and its standard error, where either says anything."""
        pairs = (
            (self.parameter, self.predicted_parameter, self.doubt[0]),
            (self.input, self.predicted_input, self.doubt[1]),
        )
        return [(m / p, d * m / p) if p else (math.inf, 0) for m, p, d in pairs if m or p]


def check(found: Outcome, within: float = 0.1) -> None:
    """Fails when the draws contradict, at two standard errors, that prediction and truth agree."""
    ratios = found.ratios()
    assert ratios, "neither predicted nor measured anything"
    assert all(abs(r - 1) <= within + 2 * d for r, d in ratios), ratios
    assert found.worst_parameter >= found.parameter
    assert found.worst_input >= found.input


def error_variance(code: Group, x: Tensor) -> Tensor:
    """Of each element: of an error that is uniform within the promised bound."""
    bound = code.max_error(x)
    return bound.square() / 3 if code.rounding == "dither" else bound.square() / 6


def by_sample(values: Tensor, x: Tensor) -> Tensor:
    """The mean over each sample's elements that are not zero."""
    there = (x != 0).flatten(1) if x.dim() > 1 else (x != 0).view(1, -1)
    each = values.reshape(there.shape)
    return ((each * there).sum(1) / there.sum(1).clamp(min=1)).double()


def outcome(
    run: Run,
    inputs: Sequence[Tensor],
    parameters: Sequence[Tensor],
    gy: Tensor,
    method: OneSite,
    draws: int = 40,
) -> Outcome:
    """run(*inputs) with new rounding each time, its backward fed with gy.

    At least `draws` times, and on until the means are known to 3 % or ten times as many are done.
    """
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    wanted = [*leaves, *parameters]

    def gradients() -> tuple[Tensor, ...]:
        # sums: a leaf, or a copy of one, is a parameter to who looks at the backward
        y = run(*(x + 0 for x in leaves))
        return torch.autograd.grad(y, wanted, gy, allow_unused=True, materialize_grads=True)

    exact = gradients()
    session = actzip.compress(method=method, min_bytes=0)
    sums = [torch.zeros_like(g, dtype=torch.float64) for g in exact]
    squares: list[list[float]] = [[] for _ in exact]
    n = len(leaves)
    while len(squares[0]) < draws or (
        len(squares[0]) < 10 * draws and max(_doubts(squares, n)) > 0.03
    ):
        with session:
            y = run(*(x + 0 for x in leaves))
        drawn = torch.autograd.grad(y, wanted, gy, allow_unused=True, materialize_grads=True)
        for i, (g, e) in enumerate(zip(drawn, exact, strict=True)):
            sums[i] += (g - e).double()
            squares[i].append(float((g - e).double().square().sum()))
    done = len(squares[0])
    offsets = [float((s / done).square().sum()) for s in sums]
    pairs = zip(squares, offsets, strict=True)
    variances = [(sum(each) / done - o) * done / (done - 1) for each, o in pairs]
    total = sum(variances)
    return _compared(
        method,
        session._statistics,
        sum(variances[n:]),
        sum(variances[:n]),
        sum(offsets) * done / total if total else 0.0,
        _doubts(squares, n),
    )


def _doubts(squares: list[list[float]], inputs: int) -> tuple[float, float]:
    """Relative standard errors of the mean ‖Δg‖², of parameters and of inputs."""

    def doubt(parts: list[list[float]]) -> float:
        sums = [sum(draw) for draw in zip(*parts, strict=True)]
        mean = sum(sums) / max(1, len(sums))
        return statistics.stdev(sums) / mean / math.sqrt(len(sums)) if mean else 0.0

    return doubt(squares[inputs:]), doubt(squares[:inputs])


def _compared(
    method: OneSite,
    told: Statistics,
    parameter: float,
    given: float,
    bias: float,
    doubt: tuple[float, float],
) -> Outcome:
    assert not told.missing, told.missing
    (reading,) = (r for r in map(told.of, told.sites) if r is not None)
    x, code = method.seen[0], method.code
    assert isinstance(code, Group)
    s2 = by_sample(error_variance(code, x), x)
    largest = float(code.max_error(x).max()) ** 2
    return Outcome(
        parameter,
        given,
        float((s2 * reading.parameter * reading.parameter_focus).sum()),
        float((s2 * reading.input * reading.input_focus).sum()),
        largest * float(reading.worst_parameter.sum()),
        largest * float(reading.worst_input.sum()),
        bias,
        doubt,
        reading,
    )
