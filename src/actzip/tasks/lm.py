"""Language modelling: cross-entropy of the next token, perplexity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from actzip.tasks.models.decoder import Decoder
from actzip.tasks.task import Batch, Model, Recipe, Task

if TYPE_CHECKING:
    from actzip.tasks.data import Data


def _decoder(data: Data, width: int, depth: int, heads: int, dropout: float) -> nn.Module:
    return Decoder(data.vocabulary, data.length, width, depth, heads, dropout)


class LanguageModel(Task):
    """Token ids (n, T) to the token that follows each."""

    name = "lm"
    metric = "perplexity"
    better = "lower"
    data = "shakespeare"
    model = "decoder"
    models: ClassVar[Mapping[str, Model]] = {
        "decoder": Model(
            _decoder,
            Recipe("adamw", 2e-3, 0.05, epochs=1, batch=32, clip=1.0),
            {"width": 128, "depth": 4, "heads": 4, "dropout": 0.1},
        )
    }

    def loss(self, model: nn.Module, inputs: Tensor, targets: Any) -> Tensor:
        return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    def evaluate(
        self, model: nn.Module, batches: Iterable[Batch], classes: int
    ) -> dict[str, float]:
        total, count = 0.0, 0
        for inputs, targets in batches:
            logits = model(inputs).flatten(0, 1).float()
            total += F.cross_entropy(logits, targets.flatten(), reduction="sum").item()
            count += targets.numel()
        return {"perplexity": math.exp(total / count), "bits": total / count / math.log(2)}
