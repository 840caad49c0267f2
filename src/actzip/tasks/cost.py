"""What one training step keeps and needs, measured on a copy of the trained model."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import actzip
from actzip.memory.measure import measure
from actzip.tasks.trainer import Part, Trainer


@dataclass(frozen=True)
class Cost:
    """Bytes of one step. Live tensors are counted above weights, optimizer state and batch."""

    raw_bytes: int  #: unique storages that autograd would keep for backward
    #: what is kept instead. Equal to raw_bytes where nothing is compressed; with checkpointing,
    #: which no session can look into, the live tensors between forward and backward.
    stored_bytes: int
    held_bytes: int  #: live tensors between forward and backward
    live_peak: int  #: most live bytes at any time of the step

    @property
    def ratio(self) -> float:
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else 1.0


def cost(build: Callable[[str], Trainer], method: str, part: Part, state: dict[str, Any]) -> Cost:
    """Measure a step from `state` on `part`; `build(method)` makes a trainer like the real one."""
    trainer = build(method)
    trainer.load_state_dict(state)
    gc.collect()  # the profiler counts only releases of memory whose allocation it saw
    with measure() as whole:
        with measure() as forward:
            loss = trainer.loss(part)
        loss.backward()
        del loss
        trainer.advance()
    stats = None if trainer.session is None else trainer.session.stats()
    trainer.close()
    if stats is not None:
        return Cost(stats.raw_bytes, stats.stored_bytes, forward.live_end, whole.live_peak)
    raw = _raw_bytes(trainer if method != "checkpoint" else build("plain"), part)
    found = Cost(raw, raw, forward.live_end, whole.live_peak)
    return replace(found, stored_bytes=found.held_bytes) if method == "checkpoint" else found


def _raw_bytes(trainer: Trainer, part: Part) -> int:
    """What PyTorch keeps, counted by a session that changes no value."""
    with warnings.catch_warnings():  # that it may compress nothing is no news here
        warnings.simplefilter("ignore", actzip.ActzipWarning)
        session = actzip.compress(trainer.model, method="lossless")
        trainer.loss(part)
        session.remove()
    return session.stats().raw_bytes
