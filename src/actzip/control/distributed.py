"""Processes that train one model together use the same bounds: the strictest of all."""

from __future__ import annotations

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel

Floats = NDArray[np.float64]


def is_together(root: nn.Module | None) -> bool:
    """Whether this forward pass is one of several processes' on one model: under DDP."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() < 2:
        return False
    # a session of the model inside: then the wrapper's forward is what is running
    inside = DistributedDataParallel._get_active_ddp_module()
    return isinstance(root, DistributedDataParallel) or inside is not None


def strictest(bounds: dict[str, Floats]) -> dict[str, Floats]:
    """The least bound of all processes, element by element; every process gets the same.

    A collective call: each process of the default group must make it in the same step. A site
    that only some of them know gets the bounds of those.
    """
    everyone: list[dict[str, Floats]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, bounds)
    found: dict[str, Floats] = {}
    for given in everyone:
        for site, bound in given.items():
            known = found.get(site, bound)
            same = known.shape == bound.shape
            found[site] = np.minimum(known, bound) if same else np.minimum(known.min(), bound.min())
    return found
