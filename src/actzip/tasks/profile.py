"""Where the bytes of a forward pass are, before and after a method, without any training."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import actzip
from actzip.memory.measure import Measurement, measure
from actzip.report.modules import Share, by_module, by_op
from actzip.tasks.curve import Curve, joined
from actzip.tasks.profile_target import Subject


@dataclass(frozen=True)
class Profile:
    """One forward and backward pass with a method."""

    label: str
    raw_bytes: int  #: unique storages that autograd would keep for backward
    stored_bytes: int  #: what is kept instead
    live_peak: int  #: most live bytes at any time of the pass, above weights and inputs
    modules: list[Share]
    ops: list[Share]
    curve: Curve

    @property
    def ratio(self) -> float:
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else 1.0


def plain(subject: Subject) -> Profile:
    """PyTorch as it is."""
    peak, curve = _measured(subject)
    session = actzip.compress(subject.model, method="lossless")
    with warnings.catch_warnings():  # that it may compress nothing is no news here
        warnings.simplefilter("ignore", actzip.ActzipWarning)
        subject.loss()
    session.remove()
    stats = session.stats()
    modules, ops = _kept(by_module(stats)), _kept(by_op(stats))
    return Profile("plain", stats.raw_bytes, stats.raw_bytes, peak, modules, ops, curve)


def _kept(shares: list[Share]) -> list[Share]:
    """The same as PyTorch keeps them."""
    return [Share(each.name, each.raw_bytes, each.raw_bytes) for each in shares if each.raw_bytes]


def compressed(subject: Subject, label: str, method: str, options: Mapping[str, Any]) -> Profile:
    """The same with a method, after one pass from which it learns."""
    session = actzip.compress(subject.model, method=method, **options)
    try:
        with warnings.catch_warnings():  # the figures say it, too, if nothing is compressed
            warnings.simplefilter("ignore", actzip.ActzipWarning)
            subject.loss().backward()
        peak, curve = _measured(subject)
        stats = session.stats()
    finally:
        session.remove()
        subject.model.zero_grad()
    kept = (stats.raw_bytes, stats.stored_bytes, peak)
    return Profile(label, *kept, by_module(stats), by_op(stats), curve)


def _measured(subject: Subject) -> tuple[int, Curve]:
    subject.model.zero_grad()
    gc.collect()  # the profiler counts only releases of memory whose allocation it saw
    device = subject.device
    with measure(device) as whole:
        with measure(device) as forward:
            loss = subject.loss()
        with measure(device) as backward:
            loss.backward()
            del loss
    subject.model.zero_grad()
    phases: list[tuple[str, Measurement]] = [("forward", forward), ("backward", backward)]
    return whole.live_peak, joined(phases)
