"""A GPT-style language model (Radford et al. 2019): pre-norm, causal attention, tied head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from actzip.tasks.models.attention import Attention


class Block(nn.Module):
    """Attention and a perceptron, each behind a LayerNorm and around a skip."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout, causal=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * width, width),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        out: Tensor = x + self.dropout(self.mlp(self.norm2(x)))
        return out


class Decoder(nn.Module):
    """Token ids (batch, length) to logits of the next token (batch, length, vocabulary)."""

    def __init__(
        self,
        vocabulary: int = 50257,
        length: int = 1024,
        width: int = 768,
        depth: int = 12,
        heads: int = 12,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        if length > self.positions.num_embeddings:
            raise ValueError(
                f"the decoder has {self.positions.num_embeddings} positions, got a sequence of "
                f"{length} tokens; cut it or build the decoder with length={length}"
            )
        positions = torch.arange(length, device=ids.device)
        x = self.dropout(self.tokens(ids) + self.positions(positions))
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits
