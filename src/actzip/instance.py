"""apply_to_instance(): compress a model as a trainer holds it, wrapped or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from actzip.api import Session, compress
from actzip.methods.base import Method

#: The method of every integration that was not told another one.
DEFAULT_METHOD = "auto"

# by name: to import FSDP takes a second, and half of these are not installed
_WRAPPERS = {
    "DataParallel": "module",
    "DeepSpeedEngine": "module",
    "DistributedDataParallel": "module",
    "FullyShardedDataParallel": "module",
    "OptimizedModule": "_orig_mod",
    "_FabricModule": "module",
}


def apply_to_instance(
    model: nn.Module,
    *,
    method: str | Method = DEFAULT_METHOD,
    optimizer: object | None = None,
    **config: Any,
) -> Session:
    """Compress a model in place, for trainers to call; `config` is what `compress` takes.

    The model may be wrapped, for data parallelism or by `torch.compile`: the session is that of
    the model inside. The optimizer may be wrapped as well. A session that the model has is
    replaced, so that to call this again with another configuration is no error.
    """
    return compress(
        unwrapped(model), method, optimizer=plain_optimizer(optimizer), replace=True, **config
    )


def unwrapped(model: nn.Module) -> nn.Module:
    """The model that the user made, without what DDP, FSDP, Fabric or a compiler put around it."""
    while True:
        names = (_WRAPPERS.get(kind.__name__) for kind in type(model).__mro__)
        name = next((name for name in names if name is not None), None)
        inner = None if name is None else getattr(model, name, None)
        if not isinstance(inner, nn.Module) or inner is model:
            return model
        model = inner


def plain_optimizer(optimizer: object | None) -> torch.optim.Optimizer | None:
    """The optimizer that has the state; None for what only stands in for one."""
    inner = getattr(optimizer, "optimizer", None)
    while isinstance(inner, torch.optim.Optimizer):
        optimizer, inner = inner, getattr(inner, "optimizer", None)
    return optimizer if isinstance(optimizer, torch.optim.Optimizer) else None


def check(method: str | Method, options: Mapping[str, Any]) -> None:
    """Raise what `compress` would raise, before a trainer has loaded anything."""
    for name in ("model", "optimizer", "replace"):
        if name in options:
            raise TypeError(f"{name}=… is the trainer's to give; leave it out")
    compress(None, method, **options)
