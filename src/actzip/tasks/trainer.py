"""Model, optimizer, schedule and the way activations are kept: all that one step changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler

import actzip
from actzip import accelerator
from actzip.tasks.checkpointing import recompute_blocks
from actzip.tasks.config import BASELINES, Config
from actzip.tasks.moved import moved

if TYPE_CHECKING:
    from actzip.tasks.data import Data


@dataclass(frozen=True)
class Part:
    """What one backward pass gets."""

    inputs: Tensor
    targets: Any


def laid_out(config: Config, inputs: Tensor) -> Tensor:
    """The inputs in the memory format that the config asks for."""
    if config.channels_last and inputs.dim() == 4:
        return inputs.contiguous(memory_format=torch.channels_last)
    return inputs


def placed(config: Config, inputs: Tensor, targets: Any, device: torch.device) -> Part:
    """A batch on the device, in the memory format that the config asks for."""
    return Part(moved(laid_out(config, inputs), device), moved(targets, device))


class Trainer:
    """Steps a model as a config says; the same config and parts give the same weights."""

    def __init__(
        self,
        config: Config,
        data: Data,
        steps: int,
        spread: Callable[[nn.Module], None] | None = None,
    ) -> None:
        """`spread` shards the model, before anything is made from its parameters."""
        torch.manual_seed(config.seed)
        self.config = config
        self.device = accelerator.choose(config.device)
        self.task = config.kind
        self.model = self.task.build(config.model, data, config.sizes).to(self.device)
        if config.channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if config.method == "checkpoint":
            recompute_blocks(self.model)
        self._sharded = spread is not None
        if spread is not None:
            spread(self.model)
        self.optimizer = optimizer(config, self.model)
        self.schedule = schedule(config, self.optimizer, steps)
        self.session = attach(config, self.model, self.optimizer)
        self.called = self.model  #: what forward passes go through; DDP's wrapper under torchrun

    def loss(self, part: Part) -> Tensor:
        """The forward pass of one part."""
        with self.precision():
            return self.task.loss(self.called, part.inputs, part.targets)

    def precision(self) -> contextlib.AbstractContextManager[object]:
        if self.config.autocast:
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    def step(self, parts: Iterable[Part]) -> float:
        """One step of the optimizer over the mean loss of all parts; that loss."""
        total = 0.0
        for number, part in enumerate(parts, 1):
            with self._synced(number == self.config.accumulate):
                loss = self.loss(part) / self.config.accumulate
                loss.backward()
            total += loss.item()
        self.advance()
        self.schedule.step()
        return total

    def _synced(self, last: bool) -> contextlib.AbstractContextManager[object]:
        """Processes that train together exchange gradients once, with the last part."""
        if isinstance(self.called, DistributedDataParallel) and not last:
            return self.called.no_sync()
        return contextlib.nullcontext()

    def advance(self) -> None:
        """One step of the optimizer with the gradients that are there."""
        if self.config.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()

    @property
    def rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def close(self) -> None:
        if self.session is not None:
            self.session.remove()

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to go on bit for bit; whole tensors, also of a sharded model."""
        found = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "session": None if self.session is None else self.session.state_dict(),
            "random": torch.get_rng_state(),
            "device_random": accelerator.random_state(self.device),
        }
        if self._sharded:
            from actzip.tasks import sharding

            found.update(sharding.whole({name: found[name] for name in ("model", "optimizer")}))
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._sharded:
            from actzip.tasks import sharding

            sharding.load_model(self.model, state["model"])
            sharding.load_optimizer(self.optimizer, state["optimizer"])
        else:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        if self.session is not None:
            self.session.load_state_dict(state["session"])
        torch.set_rng_state(state["random"])
        accelerator.set_random_state(self.device, state.get("device_random"))


def attach(
    config: Config, model: nn.Module, optimizer: torch.optim.Optimizer
) -> actzip.Session | None:
    """The method's session; None for the ways to train that need none."""
    if config.method in BASELINES:
        return None
    return actzip.compress(
        model, method=config.method, optimizer=optimizer, seed=config.seed, **config.options
    )


def optimizer(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    parameters = model.parameters()
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, config.rate, momentum=0.9, weight_decay=config.decay, nesterov=True
        )
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    # fused: one pass instead of a dozen; of 22 million weights those take longer than forward does
    return kind(parameters, config.rate, weight_decay=config.decay, fused=True)


def schedule(
    config: Config, optimizer: torch.optim.Optimizer, steps: int
) -> lr_scheduler.LRScheduler:
    if config.schedule == "onecycle":
        return lr_scheduler.OneCycleLR(optimizer, config.rate, steps)
    if config.schedule == "cosine":
        return lr_scheduler.CosineAnnealingLR(optimizer, steps)
    return lr_scheduler.ConstantLR(optimizer, factor=1.0, total_iters=1)
