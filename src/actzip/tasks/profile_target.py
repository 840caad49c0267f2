"""What is profiled: a model and one forward pass of it, ours or the user's."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from actzip import accelerator
from actzip.tasks import engine
from actzip.tasks.config import Config
from actzip.tasks.trainer import placed


@dataclass(frozen=True)
class Subject:
    """A model in training mode, and `loss`, which calls it once."""

    name: str
    model: nn.Module
    loss: Callable[[], Tensor]

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next((p.device for p in self.model.parameters()), torch.device("cpu"))


def builtin(config: Config) -> Subject:
    """A model of ours on the first examples of its data."""
    data = engine.load(config)
    if len(data.train) < config.batch:
        raise ValueError(
            f"a batch of {config.batch} is more than the {len(data.train)} training examples of "
            f"{data.name}; choose a smaller batch"
        )
    torch.manual_seed(config.seed)
    model = config.kind.build(config.model, data, config.sizes).train()
    inputs, targets = data.train.batch(torch.arange(config.batch), None)
    device = accelerator.choose(config.device)
    part = placed(config, inputs, targets, device)
    inputs, targets = part.inputs, part.targets
    model.to(device)
    if config.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    shape = "×".join(str(size) for size in inputs.shape)
    return Subject(
        f"{config.model}, input {shape}",
        model,
        lambda: config.kind.loss(model, inputs, targets),
    )


def imported(target: str) -> Subject:
    """What ``package.module:function`` returns: a model and its inputs.

    Inputs are one tensor, a tuple of arguments, or a dict of keywords. The loss is the output's
    ``loss`` if it has one, else the mean of all floating tensors in it.
    """
    model, inputs = made_by(target)
    return Subject(target, model.train(), lambda: total(call(model, inputs)))


def made_by(target: str) -> tuple[nn.Module, Any]:
    """What the named function returns."""
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise ValueError(f"a function is named package.module:function, got {target!r}")
    with _here():
        try:
            function = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"cannot import {module} for {target!r}: {error}; start in the folder that has it"
            ) from error
        except AttributeError as error:
            raise ValueError(f"the module {module} has no {name}") from error
        try:
            inspect.signature(function).bind()
        except TypeError as error:
            raise ValueError(
                f"{target} is called without arguments, and cannot be: {error}"
            ) from error
        made = function()
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):
        raise ValueError(
            f"{target} must return (model, inputs), a torch.nn.Module first, got {made!r:.80}"
        )
    return made


@contextlib.contextmanager
def _here() -> Iterator[None]:
    """The present folder can be imported from, as with ``python -m``."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def call(model: nn.Module, inputs: Any) -> Any:
    """The model's output for its inputs."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple | list) else model(inputs)


def total(output: Any) -> Tensor:
    """One number to run backward from."""
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, Tensor) and own.numel() == 1:
        return own
    found = [each.float().mean() for each in _tensors(output) if each.requires_grad]
    if not found:
        raise ValueError(
            f"the model's output, {type(output).__name__}, has no tensor that backward could start "
            "from: return floating tensors that depend on parameters, or an output with a loss"
        )
    return torch.stack(found).sum()


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for each in output.values():
            yield from _tensors(each)
    elif isinstance(output, tuple | list):
        for each in output:
            yield from _tensors(each)
