"""A model whose weights, gradients and optimizer state are spread over all processes: FSDP."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor


def shard(model: nn.Module, world: int) -> None:
    """Spread the weights, row by row of blocks, then what is left; in place."""
    mesh = init_device_mesh("cpu", (world,))
    for module in list(model.modules()):
        if isinstance(module, nn.ModuleList):  # its blocks run one after the other
            for block in module:
                fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def whole(state: Any) -> Any:
    """The same state with whole tensors; all processes must ask for it."""
    if isinstance(state, DTensor):
        return state.full_tensor()
    if isinstance(state, dict):
        return {name: whole(value) for name, value in state.items()}
    return [whole(value) for value in state] if isinstance(state, list) else state


def load_model(model: nn.Module, state: dict[str, Any]) -> None:
    """Load whole tensors, each process its part."""
    own = model.state_dict()
    model.load_state_dict({name: _part(value, own[name]) for name, value in state.items()})


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load what was kept of each parameter; what has its shape is spread as it is."""
    parameters = [p for each in optimizer.param_groups for p in each["params"]]
    kept = {
        number: {name: _part(value, parameters[number]) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": kept})


def _part(value: Any, like: Any) -> Any:
    spread = isinstance(like, DTensor) and isinstance(value, torch.Tensor)
    if not spread or value.shape != like.shape:
        return value
    return distribute_tensor(value, like.device_mesh, like.placements)
