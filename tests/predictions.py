"""One op with a stored tensor in a code: the variance of its gradients, predicted and measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

import actzip
from actzip.codecs import Group
from actzip.codecs.base import Codec
from actzip.control.statistics import Reading, Statistics
from actzip.methods.base import Site, Stateless

Run = Callable[..., Tensor]


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
    reading: Reading

    def ratios(self) -> list[float]:
        """Measured over predicted, where either says anything."""
        pairs = (
            (self.parameter, self.predicted_parameter),
            (self.input, self.predicted_input),
        )
        return [m / p if p else float("inf") for m, p in pairs if m or p]


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
    """run(*inputs) many times with new rounding, its backward fed with gy."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    wanted = [*leaves, *parameters]

    def gradients() -> tuple[Tensor, ...]:
        # copies: a leaf that is saved itself is known by its storage, and must not be edited
        y = run(*(x.clone() for x in leaves))
        return torch.autograd.grad(y, wanted, gy, allow_unused=True, materialize_grads=True)

    exact = gradients()
    session = actzip.compress(method=method, min_bytes=0)
    sums = [torch.zeros_like(g, dtype=torch.float64) for g in exact]
    squares = [0.0] * len(exact)
    for _ in range(draws):
        with session:
            y = run(*(x.clone() for x in leaves))
        drawn = torch.autograd.grad(y, wanted, gy, allow_unused=True, materialize_grads=True)
        for i, (g, e) in enumerate(zip(drawn, exact, strict=True)):
            sums[i] += (g - e).double()
            squares[i] += float((g - e).double().square().sum())
    offsets = [float((s / draws).square().sum()) for s in sums]
    pairs = zip(squares, offsets, strict=True)
    variances = [(square / draws - o) * draws / (draws - 1) for square, o in pairs]
    n = len(leaves)
    total = sum(variances)
    return _compared(
        method,
        session._statistics,
        sum(variances[n:]),
        sum(variances[:n]),
        sum(offsets) * draws / total if total else 0.0,
    )


def _compared(
    method: OneSite, statistics: Statistics, parameter: float, given: float, bias: float
) -> Outcome:
    assert not statistics.missing, statistics.missing
    (reading,) = (r for r in map(statistics.of, statistics.sites) if r is not None)
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
        reading,
    )
