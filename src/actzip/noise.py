"""How noisy are the gradients? What compression adds, beside what the choice of the batch adds."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

#: Gradients of all parameters for one draw, in the order of the parameters.
Gradients = Callable[[], Sequence[Tensor]]


@dataclass(frozen=True)
class Noise:
    """One parameter's gradient: all figures are squared norms, sums over its elements."""

    parameter: str
    signal: float  #: ‖g‖² of the exact gradient of this batch
    bias: float  #: ‖E ĝ − g‖², less what the variance of a mean of so many draws shows
    quantization: float  #: E‖ĝ − E ĝ‖²: what the rounding of stored tensors adds
    sgd: float  #: E‖g − E g‖² over batches of this size, from parts of this batch

    @property
    def share(self) -> float:
        """Quantization variance as a fraction of the SGD variance that is there anyway."""
        return self.quantization / self.sgd if self.sgd > 0 else math.nan


class NoiseReport(list[Noise]):
    """A row per parameter; printed, a table with the total below."""

    @property
    def total(self) -> Noise:
        """All parameters together."""
        names = ("signal", "bias", "quantization", "sgd")
        return Noise("total", *(sum(getattr(row, name) for row in self) for name in names))

    def __str__(self) -> str:
        rows = [*self, self.total]
        width = max(len(row.parameter) for row in rows)
        head = f"{'parameter':{width}}  {'|g|²':>9} {'bias²':>9} {'quantized':>9} {'sgd':>9}  share"
        lines = [
            f"{r.parameter:{width}}  {r.signal:9.2e} {r.bias:9.2e} {r.quantization:9.2e} "
            f"{r.sgd:9.2e} {r.share:6.1%}"
            for r in rows
        ]
        return "\n".join([head, *lines])


def compare(
    names: Sequence[str],
    exact: Sequence[Tensor],
    draw: Gradients,
    parts: Sequence[Sequence[Tensor]],
    draws: int,
) -> NoiseReport:
    """Rows from the exact gradients, repeated draws, and the gradients of parts of the batch."""
    mean = [torch.zeros_like(g, dtype=torch.float64) for g in exact]
    squares = [0.0] * len(exact)
    for _ in range(draws):
        for i, (g, e) in enumerate(zip(draw(), exact, strict=True)):
            difference = g.double() - e.double()
            mean[i] += difference / draws
            squares[i] += float(difference.square().sum()) / draws
    report = NoiseReport()
    for i, (name, g) in enumerate(zip(names, exact, strict=True)):
        offset = float(mean[i].square().sum())
        variance = (squares[i] - offset) * draws / (draws - 1)
        bias = max(0.0, offset - variance / draws)
        sgd = _variance([part[i] for part in parts])
        report.append(Noise(name, float(g.double().square().sum()), bias, variance, sgd))
    return report


def gradients_of(
    model: nn.Module, loss: Callable[[Any, Any], Tensor]
) -> tuple[tuple[str, ...], Callable[[Any, Any], tuple[Tensor, ...]]]:
    """The names of a model's parameters, and what computes their gradients on a batch."""
    names, parameters = zip(
        *((n, p) for n, p in model.named_parameters() if p.requires_grad), strict=True
    )

    def gradients(x: Any, y: Any) -> tuple[Tensor, ...]:
        with torch.random.fork_rng():  # the same dropout in every draw
            value = loss(model(x), y)
        found: tuple[Tensor, ...] = torch.autograd.grad(
            value, parameters, allow_unused=True, materialize_grads=True
        )
        return found

    return names, gradients


@contextlib.contextmanager
def put_back(model: nn.Module) -> Iterator[None]:
    """The model in training mode; its buffers and modes are afterwards as they were."""
    buffers = [(b, b.detach().clone()) for b in model.buffers()]
    modes = [(module, module.training) for module in model.modules()]
    if not model.training:  # parts in eval mode, a frozen norm, stay so in a model that trains
        model.train()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def _variance(parts: Sequence[Tensor]) -> float:
    """Of the mean of the parts' gradients: what the next batch of this size would differ by."""
    if len(parts) < 2:
        return math.nan
    stacked = torch.stack([p.double() for p in parts])
    spread = float((stacked - stacked.mean(0)).square().sum())
    return spread / (len(parts) * (len(parts) - 1))
