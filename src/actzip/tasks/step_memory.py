"""What one training step keeps and needs, measured on a copy of the trained model."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import actzip
from actzip.memory.measure import measure
from actzip.report.modules import Share, by_module
from actzip.tasks.curve import Curve, joined
from actzip.tasks.trainer import Part, Trainer


@dataclass(frozen=True)
class Cost:
    """Bytes of one step. Live tensors are counted above weights, optimizer state and batch."""

    raw_bytes: int  #: unique storages that autograd would keep for backward
    #: what is kept instead. Equal to raw_bytes where nothing is compressed; with checkpointing,
    #: which no session can look into, the live tensors between forward and backward.
    stored_bytes: int
    held_bytes: int  #: live tensors between forward and backward
    #: most live bytes at any time of the step, or of the first step of a run: adaptive methods
    #: look at the gradients in it, and store more before they have learned anything
    live_peak: int
    #: raw and stored bytes of every module; empty where no session can look into the blocks
    modules: list[Share] = field(default_factory=list)
    curve: Curve = field(default_factory=Curve)  #: live bytes over the step

    @property
    def ratio(self) -> float:
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else 1.0

    @classmethod
    def read(cls, values: dict[str, Any]) -> Cost:
        """The cost of which `values` is the JSON."""
        known = {name: value for name, value in values.items() if name != "ratio"}
        known["modules"] = [Share(**each) for each in known["modules"]]
        points, phases = known["curve"]["points"], known["curve"]["phases"]
        known["curve"] = Curve([(s, b) for s, b in points], [(n, s) for n, s in phases])
        return cls(**known)


def cost(build: Callable[[str], Trainer], method: str, part: Part, state: dict[str, Any]) -> Cost:
    """Measure a step from `state` on `part`; `build(method)` makes a trainer like the real one."""
    trainer = build(method)
    first = 0 if trainer.session is None else _first(build(method), part)
    trainer.load_state_dict(state)
    gc.collect()  # the profiler counts only releases of memory whose allocation it saw
    device = trainer.device
    with measure(device) as whole:
        with measure(device) as forward:
            loss = trainer.loss(part)
        with measure(device) as backward:
            loss.backward()
            del loss
        with measure(device) as update:
            trainer.advance()
    trainer.close()
    peak = max(first, whole.live_peak)
    curve = joined([("forward", forward), ("backward", backward), ("update", update)])
    if trainer.session is not None:
        stats = trainer.session.stats()
        kept = (stats.raw_bytes, stats.stored_bytes, forward.live_end, peak)
        return Cost(*kept, by_module(stats), curve)
    raw, modules = _plain(trainer if method != "checkpoint" else build("plain"), part)
    if method == "checkpoint":
        return Cost(raw, forward.live_end, forward.live_end, peak, [], curve)
    return Cost(raw, raw, forward.live_end, peak, modules, curve)


def _first(trainer: Trainer, part: Part) -> int:
    """The live peak of a session's first step; what its optimizer makes then is not counted."""
    gc.collect()
    with measure(trainer.device) as found:
        trainer.loss(part).backward()
    trainer.close()
    return found.live_peak


def _plain(trainer: Trainer, part: Part) -> tuple[int, list[Share]]:
    """What PyTorch keeps, counted by a session that changes no value."""
    with warnings.catch_warnings():  # that it may compress nothing is no news here
        warnings.simplefilter("ignore", actzip.ActzipWarning)
        session = actzip.compress(trainer.model, method="lossless")
        trainer.loss(part)
        session.remove()
    stats = session.stats()
    modules = [Share(each.name, each.raw_bytes, each.raw_bytes) for each in by_module(stats)]
    return stats.raw_bytes, [each for each in modules if each.raw_bytes]
