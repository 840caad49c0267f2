"""Text classification: cross-entropy, accuracy. Padding (id 0) is masked out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from actzip.tasks.data.contract import PADDING
from actzip.tasks.data.pretrained_files import folder
from actzip.tasks.models.encoder import Encoder
from actzip.tasks.models.lstm import GRUClassifier, LSTMClassifier
from actzip.tasks.models.pretrained import Pretrained
from actzip.tasks.task import Batch, Model, Recipe, Task

if TYPE_CHECKING:
    from actzip.tasks.data import Data


def _recurrent(kind: type[LSTMClassifier]) -> Model:
    def build(data: Data, width: int, depth: int, dropout: float) -> nn.Module:
        return kind(data.vocabulary, width, depth, len(data.classes), dropout)

    recipe = Recipe("adamw", 2e-3, 0.01, epochs=3, clip=1.0)
    return Model(build, recipe, {"width": 64, "depth": 1, "dropout": 0.2})


def _encoder(data: Data, width: int, depth: int, heads: int, dropout: float) -> nn.Module:
    classes = len(data.classes)
    shape = (data.vocabulary, data.length, width, depth, heads, classes)
    return Encoder(*shape, dropout, first=True)


def _pretrained(name: str) -> Model:
    def build(data: Data, dropout: float, lora: int) -> nn.Module:
        return Pretrained(folder(name), len(data.classes), dropout, lora)

    recipe = Recipe("adamw", 1e-4, 0.01, epochs=1, batch=32, clip=1.0)
    return Model(build, recipe, {"dropout": 0.1, "lora": 0}, tokens=name)


class Text(Task):
    """Token ids (n, T) to a class each."""

    name = "text"
    metric = "top1"
    data = "movie-reviews"
    model = "lstm"
    models: ClassVar[Mapping[str, Model]] = {
        "lstm": _recurrent(LSTMClassifier),
        "gru": _recurrent(GRUClassifier),
        "encoder": Model(
            _encoder,
            Recipe("adamw", 1e-3, 0.01, epochs=3, clip=1.0),
            {"width": 64, "depth": 2, "heads": 4, "dropout": 0.1},
        ),
        "minilm": _pretrained("minilm"),
    }

    def loss(self, model: nn.Module, inputs: Tensor, targets: Any) -> Tensor:
        return F.cross_entropy(model(inputs, inputs != PADDING), targets)

    def evaluate(
        self, model: nn.Module, batches: Iterable[Batch], classes: int
    ) -> dict[str, float]:
        right = count = 0
        for inputs, targets in batches:
            logits = model(inputs, inputs != PADDING)
            right += int((logits.argmax(1) == targets).sum())
            count += len(targets)
        return {"top1": right / count}
