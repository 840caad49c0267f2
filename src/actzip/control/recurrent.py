"""oneDNN's LSTM: how an error in its stored input or output shows in the weights' gradients.

Backward takes gates and cells from oneDNN's own workspace, which stays exact. The stored input x
and output h enter two products only, linearly:

    gW_ih = Σ gAₜ·xₜᵀ,   gW_hh = Σ gAₜ₊₁·hₜᵀ,   gA the gradients before the gates.

So w of xₜ is ‖gAₜ‖² and w of hₜ is ‖gAₜ₊₁‖². gA never leaves oneDNN: it is made again here, for the
first sequences of the batch, whose mean stands for the others. (A reversed pass may read its input
from a copy in the workspace instead: then this is more than there is.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from actzip.control.backward import Backward, ErrorWeights, wide

_SAMPLE = 1 << 18  #: numbers before the gates that are made again
_LSTM = 2  #: what the node calls this kind


def _gate_energy(b: Backward) -> Tensor:
    """‖gA‖² of each step and sequence, (T, N, 1)."""
    if int(b.saved["mode"]) != _LSTM or b.saved["batch_sizes"]:
        raise ValueError("only LSTMs on whole batches have a formula")
    x = b.saved["input"]
    steps, batch = x.shape[:2]
    size = int(b.saved["hidden_size"])
    some = max(1, min(batch, _SAMPLE // max(1, 4 * size * steps)))
    order = range(steps - 1, -1, -1) if b.saved["reverse"] else range(steps)
    before, y, h, c = _unrolled(b, x[:, :some].to(wide(x)), list(order), some)
    came = (b.outer, *b.later[:2])
    kept = [(out, g) for out, g in zip((y, h, c), came, strict=False) if g is not None]
    found = torch.autograd.grad(
        [out for out, _ in kept],
        before,
        [g[..., :some, :].to(out.dtype).reshape(out.shape) for out, g in kept],
    )
    energy: Tensor = x.new_zeros((steps, batch, 1), dtype=wide(x))
    for t, g in zip(order, found, strict=True):
        energy[t, :some, 0] = g.square().sum(-1)
        energy[t, some:, 0] = energy[t, :some, 0].mean()
    return energy


def _unrolled(
    b: Backward, x: Tensor, order: Sequence[int], some: int
) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
    """The LSTM step by step: what stands before the gates, the outputs, the last h and c."""
    w_ih, w_hh, b_ih, b_hh = (b.saved[f"weight{i}"].to(x.dtype) for i in range(4))
    # biases are zeros in an LSTM without them
    h, c = (b.saved[name].reshape(-1, w_hh.shape[1])[:some].to(x.dtype) for name in ("hx_", "cx_"))
    before: list[Tensor] = []
    outputs: list[Tensor] = []
    with torch.enable_grad():
        for t in order:
            a = x[t] @ w_ih.t() + h @ w_hh.t() + b_ih + b_hh
            a = a if a.requires_grad else a.requires_grad_()
            before.append(a)
            i, f, g, o = a.chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        placed = [h for _, h in sorted(zip(order, outputs, strict=True), key=lambda p: p[0])]
        return before, torch.stack(placed), h, c


def lstm_input(b: Backward) -> ErrorWeights:
    if not b.gives(1):
        return ErrorWeights()
    return _weights(b, _gate_energy(b), 1)


def lstm_output(b: Backward) -> ErrorWeights:
    """Each output is read by the step after it; the last one by none."""
    if not b.gives(2):
        return ErrorWeights()
    energy = _gate_energy(b)
    after = torch.zeros_like(energy)
    if b.saved["reverse"]:
        after[1:] = energy[:-1]
    else:
        after[:-1] = energy[1:]
    return _weights(b, after, 2)


def _weights(b: Backward, energy: Tensor, target: int) -> ErrorWeights:
    worst = (energy.sum() * energy.numel()).expand(b.x.shape[-1])
    if b.leaves[target]:
        return ErrorWeights(parameter=energy, worst_parameter=worst)
    return ErrorWeights(input=energy, worst_input=worst)
