"""What is planned: a model without memory, and a forward pass of it with any number of samples."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from actzip.memory.step_peak import held
from actzip.tasks import engine
from actzip.tasks.config import Config
from actzip.tasks.profile_target import call, made_by, total
from actzip.tasks.trainer import laid_out
from actzip.torch_private import tree_leaves, tree_map_only

#: Bytes of an optimizer's state for each byte of a weight that is trained.
STATES = {"sgd": 1, "adam": 2, "adamw": 2}


@dataclass(frozen=True)
class Target:
    """A model of fake tensors, and `loss(samples)`, which calls it once."""

    name: str
    model: nn.Module
    batch: int  #: samples of the pass that was asked for
    optimizer: str
    inputs: Callable[[int], Any]  #: for so many samples
    loss_of: Callable[[Any], Tensor]
    notes: tuple[str, ...] = ()
    device: str = "cpu"  #: the type of the one that it is planned for

    @property
    def weights(self) -> int:
        """Bytes of parameters and buffers."""
        return held([*self.model.parameters(), *self.model.buffers()])

    @property
    def gradients(self) -> int:
        return held([p for p in self.model.parameters() if p.requires_grad])

    @property
    def state(self) -> int:
        """Bytes of the optimizer's state."""
        return STATES[self.optimizer] * self.gradients


def builtin(config: Config, fake: Any) -> Target:
    """A model of ours, for its data; `fake` is the mode that makes tensors without memory."""
    data = engine.load(config)
    examples, targets = data.train.batch(torch.arange(2), None)
    examples = laid_out(config, examples)
    with fake:
        model = config.kind.build(config.model, data, config.sizes).train()
        if config.channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    notes = []
    if not isinstance(targets, Tensor):  # boxes: the loss looks at them
        targets = None
        notes.append("the loss looks at values: the mean of the outputs stands in for it")

    def inputs(samples: int) -> Any:
        return resized((examples, targets), 2, samples)

    def loss(given: Any) -> Tensor:
        x, wanted = given
        with _precision(config):
            return total(model(x)) if wanted is None else config.kind.loss(model, x, wanted)

    shape = "×".join(str(size) for size in (config.batch, *examples.shape[1:]))
    name = f"{config.model}, input {shape}"
    return Target(name, model, config.batch, config.optimizer, inputs, loss, tuple(notes))


def _precision(config: Config) -> contextlib.AbstractContextManager[object]:
    if config.autocast:
        return torch.autocast("cpu", torch.bfloat16)
    return contextlib.nullcontext()


def imported(target: str, batch: int | None, optimizer: str, fake: Any) -> Target:
    """What ``package.module:function`` returns, as `actzip profile` takes it.

    It is called where tensors take no memory; a function that looks at values is called again
    where they do, and its model is then replaced.
    """
    notes = []
    try:
        with fake:
            model, inputs = made_by(target)
    except RuntimeError:
        model, inputs = made_by(target)
        _without_memory(model, fake)
        notes.append(f"{target} looks at values while it builds the model: weights were allocated")
    tensors = [t for t in tree_leaves(inputs) if isinstance(t, Tensor) and t.dim()]
    if not tensors:
        raise ValueError(f"{target} gives no tensor as an input: nothing to count samples by")
    own = tensors[0].shape[0]
    return Target(
        target,
        model.train(),
        batch or own,
        optimizer,
        lambda samples: resized(inputs, own, samples),
        lambda given: total(call(model, given)),
        tuple(notes),
    )


def resized(inputs: Any, own: int, samples: int) -> Any:
    """Inputs like these for so many samples: tensors whose first dimension is the batch."""

    def of(t: Tensor) -> Tensor:
        size = (samples, *t.shape[1:]) if t.dim() and t.shape[0] == own else tuple(t.shape)
        made = torch.empty(size, dtype=t.dtype, device=t.device)
        if t.dim() == 4 and not t.is_contiguous():
            made = made.contiguous(memory_format=torch.channels_last)
        return made.requires_grad_(t.requires_grad)

    return tree_map_only(Tensor, of, inputs)


def _without_memory(model: nn.Module, fake: Any) -> None:
    """Replace parameters and buffers by fake ones; what is tied stays tied."""
    for module in model.modules():
        for found in (module._parameters, module._buffers):
            for name, t in found.items():
                if t is not None:
                    found[name] = fake.from_tensor(t)


def real_builtin(config: Config, samples: int) -> tuple[nn.Module, Callable[[int], Tensor]]:
    """The model with memory, and its loss on other examples in every step."""
    data = engine.load(config)
    torch.manual_seed(config.seed)
    model = config.kind.build(config.model, data, config.sizes).train()

    def loss(at: int) -> Tensor:
        which = torch.arange(at * samples, (at + 1) * samples) % len(data.train)
        inputs, targets = data.train.batch(which, None)
        return config.kind.loss(model, laid_out(config, inputs), targets)

    return model, loss


def real_imported(target: str, samples: int) -> tuple[nn.Module, Callable[[int], Tensor]]:
    """The same of a user's function, whose own inputs are cut into parts."""
    model, inputs = made_by(target)
    own = next(t for t in tree_leaves(inputs) if isinstance(t, Tensor) and t.dim()).shape[0]

    def loss(at: int) -> Tensor:
        which = torch.arange(at * samples, (at + 1) * samples) % own

        def of(t: Tensor) -> Tensor:
            return t[which] if t.dim() and t.shape[0] == own else t

        return total(call(model, tree_map_only(Tensor, of, inputs)))

    return model.train(), loss
