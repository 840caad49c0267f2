"""Cases of attention and recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from slot_case import HEADS, ROWS, case, coin, const
from torch import Tensor, nn


def over(module: Callable[[], nn.Module], **call: Any) -> Callable[[Tensor], Any]:
    """Run a freshly made module of x's dtype in training mode."""

    def run(x: Tensor) -> Any:
        return _first(module().to(x.dtype)(x, **call))

    return run


def _first(out: Any) -> Any:
    return out[0] if isinstance(out, tuple) else out


# attention
sdpa = F.scaled_dot_product_attention
case("attention", sdpa, HEADS, HEADS, HEADS)
case("attention causal", lambda q, k, v: sdpa(q, k, v, is_causal=True), HEADS, HEADS, HEADS)
case(
    "attention with a bool mask",
    lambda q, k, v: sdpa(q, k, v, coin(2, 1, 24, 24) | torch.eye(24, dtype=torch.bool)),
    HEADS,
    HEADS,
    HEADS,
)
case(
    "attention with a float mask",
    lambda q, k, v: sdpa(q, k, v, const(2, 4, 24, 24)(q)),
    HEADS,
    HEADS,
    HEADS,
)
case("attention with a learned bias", sdpa, HEADS, HEADS, HEADS, (4, 24, 24))
case("attention with dropout", lambda q, k, v: sdpa(q, k, v, dropout_p=0.2), HEADS, HEADS, HEADS)
case(
    "attention causal with dropout",
    lambda q, k, v: sdpa(q, k, v, dropout_p=0.2, is_causal=True),
    HEADS,
    HEADS,
    HEADS,
)
case(
    "attention with shared heads",
    lambda q, k, v: sdpa(q, k, v, enable_gqa=True),
    HEADS,
    (2, 2, 24, 16),
    (2, 2, 24, 16),
)
case(
    "attention with shared heads and dropout",
    lambda q, k, v: sdpa(q, k, v, enable_gqa=True, dropout_p=0.2),
    HEADS,
    (2, 2, 24, 16),
    (2, 2, 24, 16),
)
case(
    "multi-head attention",
    lambda x: nn.MultiheadAttention(16, 4, dropout=0.1).to(x.dtype)(x, x, x),
    (24, 8, 16),
)


# recurrent
def packed(make: Callable[..., nn.Module], **options: Any) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        lengths: Sequence[int] = [20, 15, 9, 4]
        sequence = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        out = make(32, 16, batch_first=True, **options).to(x.dtype)(sequence)[0]
        return nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0]

    return run


STEPS = (4, 20, 32)
for cell in (nn.LSTM, nn.GRU, nn.RNN):
    name = cell.__name__
    case(name, over(lambda c=cell: c(32, 16, batch_first=True)), STEPS)
    case(
        f"{name} deep, both ways",
        over(lambda c=cell: c(32, 16, 2, dropout=0.2, bidirectional=True)),
        STEPS,
    )
    case(f"{name} packed", packed(cell), STEPS)
    case(
        f"{name} packed, both ways",
        packed(cell, num_layers=2, dropout=0.2, bidirectional=True),
        STEPS,
    )
case("LSTM with projection", over(lambda: nn.LSTM(32, 16, proj_size=8)), STEPS)
case("LSTMCell", over(lambda: nn.LSTMCell(48, 32)), ROWS)
case("GRUCell", over(lambda: nn.GRUCell(48, 32)), ROWS)
