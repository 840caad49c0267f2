"""Run a function in two processes that form a group."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def _run(rank: int, store: str, work: Callable[..., None], args: tuple[Any, ...]) -> None:
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    work(rank, *args)
    gc.collect()  # a DistributedDataParallel in a cycle keeps the group's threads
    dist.barrier()
    dist.destroy_process_group()
    # Gloo's threads may still want the interpreter while it shuts down, and abort the process:
    # about once in 25 runs on a busy machine. All that was to be shown is shown by now.
    os._exit(0)


def in_two_processes(tmp_path: Path, work: Callable[..., None], *args: Any) -> None:
    """``work(rank, *args)`` in both; they meet through a file in ``tmp_path``."""
    mp.spawn(_run, args=(str(tmp_path / "store"), work, args), nprocs=2, join=True)  # type: ignore[attr-defined,no-untyped-call]
