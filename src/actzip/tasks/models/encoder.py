"""A BERT-style text classifier (Devlin et al. 2018): post-norm encoder layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """Multi-head attention; q, k and v come from three Linears."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        q, k, v = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep, dropout_p=dropout)
        out: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return out


class Layer(nn.Module):
    """Attention, then a perceptron; the LayerNorm comes after each sum."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads, dropout)
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.norm2 = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        x = self.norm1(x + self.dropout(self.attention(x, keep)))
        out: Tensor = self.norm2(x + self.dropout(self.mlp(x)))
        return out


class Encoder(nn.Module):
    """Token ids (batch, length) to class logits, read from the first token.

    `keep`, a bool tensor like the ids, is False at padding, which no token then attends to.
    `first` puts a learned token before the text, for ids that do not begin with BERT's [CLS].
    """

    def __init__(
        self,
        vocabulary: int = 30522,
        length: int = 512,
        width: int = 768,
        depth: int = 12,
        heads: int = 12,
        classes: int = 2,
        dropout: float = 0.1,
        *,
        first: bool = False,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length + first, width)
        self.first = nn.Parameter(torch.randn(1, 1, width)) if first else None
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(width, heads, dropout) for _ in range(depth))
        self.pooler = nn.Linear(width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        x = self.tokens(ids)
        if self.first is not None:
            x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1)
            keep = None if keep is None else F.pad(keep, (1, 0), value=True)
        positions = torch.arange(x.shape[1], device=ids.device)
        x = self.dropout(self.norm(x + self.positions(positions)))
        mask = None if keep is None else keep[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        logits: Tensor = self.head(self.dropout(torch.tanh(self.pooler(x[:, 0]))))
        return logits
