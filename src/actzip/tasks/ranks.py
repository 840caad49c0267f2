"""Processes that train one model together, as torchrun starts them: each with a part of a batch."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from actzip.tasks.trainer import Part


@dataclass(frozen=True)
class Ranks:
    """Which process this is, of how many; alone it is the first of one."""

    rank: int = 0
    world: int = 1
    sharded: bool = False  #: each holds a part of the weights (FSDP), not all of them (DDP)

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def check(self, batch: int, accumulate: int) -> None:
        """Raise ValueError when a batch cannot be dealt out evenly."""
        if batch % (accumulate * self.world):
            parts = f" in accumulate={accumulate} parts" if accumulate > 1 else ""
            raise ValueError(
                f"a batch of {batch}{parts} cannot be dealt out to {self.world} processes; "
                f"choose a multiple of {accumulate * self.world}"
            )

    def own(self, part: Part) -> Part:
        """What this process computes of a part."""
        if self.world == 1:
            return part
        at = slice(self.rank, None, self.world)
        return Part(part.inputs[at], part.targets[at])

    @property
    def spread(self) -> Callable[[nn.Module], None] | None:
        """What gives each process its part of a model's weights; None: each has all."""
        if not self.sharded:
            return None
        from actzip.tasks.sharding import shard  # to import FSDP takes a second

        return partial(shard, world=self.world)

    def shared(self, model: nn.Module) -> nn.Module:
        """The model with gradients that are averaged over all processes."""
        return model if self.world == 1 or self.sharded else DistributedDataParallel(model)

    def mean(self, value: float) -> float:
        """The mean over all processes."""
        return self._sum(value) / self.world

    def any(self, asked: bool) -> bool:
        """Whether any process says so; all get the same answer."""
        return self._sum(float(asked)) > 0

    def _sum(self, value: float) -> float:
        if self.world == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(total)
        return total.item()

    def gathered(self, value: Any) -> list[Any]:
        """What each process has, in their order."""
        if self.world == 1:
            return [value]
        everyone: list[Any] = [None] * self.world
        dist.all_gather_object(everyone, value)
        return everyone


def started() -> tuple[int, int]:
    """Which process torchrun started this as, of how many; the first of one without it."""
    if "RANK" not in os.environ:
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ.get("WORLD_SIZE", "1"))


def joined(sharded: bool = False) -> Ranks:
    """The group of this process, joined if torchrun started it; alone otherwise."""
    if not (dist.is_available() and dist.is_initialized()):
        if started()[1] == 1:
            if sharded:
                raise ValueError(
                    "--fsdp spreads the weights over several processes, and this is one; start "
                    "them with: torchrun --nproc-per-node 2 -m actzip train --fsdp …"
                )
            return Ranks()
        dist.init_process_group("gloo")
    return Ranks(dist.get_rank(), dist.get_world_size(), sharded)


def leave(ranks: Ranks) -> None:
    """Wait for the others and leave the group."""
    if ranks.world > 1:
        gc.collect()  # a DistributedDataParallel in a cycle keeps the group's threads
        dist.barrier()
        dist.destroy_process_group()


def end(ranks: Ranks) -> None:
    """End a process that was in a group, once all is said and written.

    Gloo's threads may still want the interpreter while it shuts down, and abort the process:
    about once in 25 runs on a busy machine, which torchrun would report as a failure.
    """
    if ranks.world > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def alone(command: str) -> None:
    """Raise ValueError when torchrun started this process: every one would do the same."""
    if started()[1] > 1:
        raise ValueError(
            f"{command} is for one process; torchrun is for `actzip train` and `actzip max-batch`"
        )
