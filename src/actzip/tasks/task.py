"""What a task is: the models it knows, the loss of a batch, the metric over the test set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

if TYPE_CHECKING:
    from actzip.tasks.data import Data

#: inputs and targets, as `Examples.batch` gives them
Batch = tuple[Tensor, Any]


@dataclass(frozen=True)
class Recipe:
    """How a model is trained when the user says nothing else."""

    optimizer: str = "sgd"
    rate: float = 0.1
    decay: float = 5e-4
    epochs: int = 5
    batch: int = 64
    schedule: str = "onecycle"
    clip: float = 0.0


@dataclass(frozen=True)
class Model:
    """A model a task knows: how it is built for some data, and how it is trained."""

    build: Callable[..., nn.Module]  #: build(data, **sizes)
    recipe: Recipe = field(default_factory=Recipe)
    sizes: Mapping[str, Any] = field(default_factory=dict)  #: its sizes and their defaults
    tokens: str = "words"  #: what texts are cut into for it


class Task(ABC):
    """One kind of training job. Tasks hold no state: everything is in model and data."""

    name: ClassVar[str]
    metric: ClassVar[str]  #: the figure that tells how good a model is, one of `evaluate`'s
    better: ClassVar[str] = "higher"  #: "higher" or "lower"
    data: ClassVar[str]  #: the built-in data it trains on when none is given
    model: ClassVar[str]  #: the model it trains when none is given
    models: ClassVar[Mapping[str, Model]]

    @abstractmethod
    def loss(self, model: nn.Module, inputs: Tensor, targets: Any) -> Tensor:
        """The mean loss of a batch; calls the model once."""

    @abstractmethod
    def evaluate(
        self, model: nn.Module, batches: Iterable[Batch], classes: int
    ) -> dict[str, float]:
        """The metrics over all `batches`; the model is in eval mode, gradients are off."""

    def build(self, name: str, data: Data, sizes: Mapping[str, Any]) -> nn.Module:
        """The named model for `data`, with `sizes` over its defaults."""
        model = self.models[name]
        try:
            return model.build(data, **{**model.sizes, **sizes})
        except (RuntimeError, TypeError, ValueError, AssertionError) as error:
            raise ValueError(
                f"{self.described(name, sizes)} cannot be built for {data.name}: "
                f"{first_line(error)}"
            ) from error

    def described(self, name: str, sizes: Mapping[str, Any]) -> str:
        """A model with its sizes, for messages."""
        given = {**self.models[name].sizes, **sizes}
        return f"{name} with " + ", ".join(f"{key}={value}" for key, value in given.items())


def first_line(error: BaseException) -> str:
    """What an exception says, without the pages that may follow."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
