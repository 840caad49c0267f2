"""Recurrent text classifiers: an embedding, an LSTM or a GRU, a Linear on the last state."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn


class LSTMClassifier(nn.Module):
    """Token ids (batch, length) to class logits through a stack of LSTM layers."""

    layers: ClassVar[type[nn.LSTM] | type[nn.GRU]] = nn.LSTM

    def __init__(
        self,
        vocabulary: int = 20000,
        width: int = 256,
        depth: int = 2,
        classes: int = 2,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        between = dropout if depth > 1 else 0.0
        self.rnn = self.layers(width, width, depth, batch_first=True, dropout=between)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        _, state = self.rnn(self.tokens(ids))
        hidden = state[0] if isinstance(state, tuple) else state  # an LSTM also has cells
        logits: Tensor = self.head(self.dropout(hidden[-1]))
        return logits


class GRUClassifier(LSTMClassifier):
    """The same through a stack of GRU layers."""

    layers = nn.GRU
