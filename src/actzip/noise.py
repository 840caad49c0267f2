"""How noisy are the gradients? What compression adds, beside what the choice of the batch adds."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Gradients of all parameters for one draw, in the order of the parameters.
Gradients = Callable[[], Sequence[Tensor]]
#: (inputs, targets), or named inputs that the model is called with.
Batch = tuple[Any, Any] | Mapping[str, Any]
#: Of (output, targets), or of (output, batch) for named inputs.
Loss = Callable[[Any, Any], Tensor]


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

    @property
    def lean(self) -> float:
        """Squared bias as a fraction of the squared gradient."""
        return self.bias / self.signal if self.signal > 0 else math.nan


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
    model: nn.Module, loss: Loss | None
) -> tuple[tuple[str, ...], Callable[[Batch], tuple[Tensor, ...]]]:
    """The names of a model's parameters, and what computes their gradients on a batch."""
    names, parameters = zip(
        *((n, p) for n, p in model.named_parameters() if p.requires_grad), strict=True
    )

    def gradients(batch: Batch) -> tuple[Tensor, ...]:
        with torch.random.fork_rng():  # the same dropout in every draw
            value = _loss_of(model, batch, loss)
        found: tuple[Tensor, ...] = torch.autograd.grad(
            value, parameters, allow_unused=True, materialize_grads=True
        )
        return found

    return names, gradients


def _loss_of(model: nn.Module, batch: Batch, loss: Loss | None) -> Tensor:
    if isinstance(batch, Mapping):
        output = model(**batch)
        return _own_loss(output) if loss is None else loss(output, batch)
    inputs, targets = batch
    output = model(**inputs) if isinstance(inputs, Mapping) else model(inputs)
    return (loss or F.cross_entropy)(output, targets)


def _own_loss(output: Any) -> Tensor:
    """The loss that a model returns: its output, or the output's `.loss` or ["loss"]."""
    found = getattr(output, "loss", None)
    if found is None and isinstance(output, Mapping):
        found = output.get("loss")
    if found is None and isinstance(output, Tensor):
        found = output
    if not isinstance(found, Tensor) or found.numel() != 1:
        raise TypeError(
            "gradient_noise was given a batch of named inputs, so the model must return its loss: "
            'an output with `.loss`, a dict with "loss", or a scalar; got '
            f"{type(output).__name__}. Put the labels into the batch, or give "
            "loss=function(output, batch)"
        )
    return found.reshape(())


def pieces(batch: Batch, parts: int) -> list[Batch]:
    """The batch in at most so many pieces along the first dimension of its tensors.

    Of named inputs, those of another first size than the first tensor, and what is no tensor,
    belong to every piece.
    """
    if isinstance(batch, Mapping):
        return list(_named_pieces(batch, parts, None))
    inputs, targets = batch
    count = min(parts, len(targets))
    if isinstance(inputs, Mapping):
        cut: Sequence[Any] = _named_pieces(inputs, count, len(targets))
    else:
        cut = inputs.chunk(count)
    return list(zip(cut, targets.chunk(count), strict=True))


def _named_pieces(
    inputs: Mapping[str, Any], parts: int, samples: int | None
) -> list[Mapping[str, Any]]:
    tensors = {k: v for k, v in inputs.items() if isinstance(v, Tensor) and v.dim() > 0}
    if not tensors:
        raise ValueError(
            "gradient_noise needs a tensor with a sample dimension in the batch, got "
            f"{', '.join(f'{k}: {type(v).__name__}' for k, v in inputs.items()) or 'nothing'}"
        )
    size = next(iter(tensors.values())).shape[0] if samples is None else samples
    cut = {k: v.chunk(min(parts, size)) for k, v in tensors.items() if v.shape[0] == size}
    count = len(next(iter(cut.values()), (None,)))
    return [{**inputs, **{k: v[i] for k, v in cut.items()}} for i in range(count)]


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
