"""Recurrent text classifiers: an embedding, an LSTM or a GRU, a Linear on the mean state."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class LSTMClassifier(nn.Module):
    """Token ids (batch, length) to class logits through a stack of LSTM layers.

    `keep`, a bool tensor like the ids, is False at the padding after a text. Texts are then
    packed: padding is neither computed nor part of the mean. Packed layers also run as plain
    PyTorch ops, whose saved tensors can be read, while oneDNN's LSTM keeps an opaque workspace
    of eight times the states. (The last state alone learns slowly: reviews are long.)
    """

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

    def forward(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        embedded = self.tokens(ids)
        if keep is None:
            mean = self.rnn(embedded)[0].mean(1)
        else:
            lengths = keep.sum(1).clamp(min=1)
            packed = pack_padded_sequence(
                embedded, lengths.cpu(), batch_first=True, enforce_sorted=False
            )
            states, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
            mean = states.sum(1) / lengths.unsqueeze(1)  # states of padding are zero
        logits: Tensor = self.head(self.dropout(mean))
        return logits


class GRUClassifier(LSTMClassifier):
    """The same through a stack of GRU layers."""

    layers = nn.GRU
