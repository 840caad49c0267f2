"""What `auto` would keep: its bits follow from values, so a few real steps of few samples tell."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

import actzip
from actzip.plan.step import Step
from actzip.report.modules import Share, by_module, by_op

STEPS = 12  #: real ones: three looks, after which auto aims at the whole noise
SAMPLES = 8  #: of each
MOST = 512 << 20  #: bytes of weights; larger models are not run
ASSUMED = (
    f"auto: bits as after {STEPS} real steps of {SAMPLES} samples from the first weights; training "
    "changes them"
)

#: A real model, and its loss on the samples of a step.
Real = tuple[nn.Module, Callable[[int], Tensor]]


def kept(real: Real, noise: float) -> tuple[dict[str, float], dict[str, float], float]:
    """The shares of plain's bytes that are kept: of modules, of ops and of all."""
    model, loss = real
    session = actzip.compress(model, method="auto", noise=noise)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", actzip.ActzipWarning)
            for at in range(STEPS):
                loss(at).backward()
                model.zero_grad()
        stats = session.stats()
    finally:
        session.remove()
    return (
        _shares(by_module(stats)),
        _shares(by_op(stats)),
        stats.stored_bytes / max(1, stats.raw_bytes),
    )


def _shares(found: list[Share]) -> dict[str, float]:
    return {each.name: each.stored_bytes / each.raw_bytes for each in found if each.raw_bytes}


def scaled(like: Step, plain: Step, label: str, found: Any) -> Step:
    """The step of `auto`: `like`, of a method that works the same way, with these shares kept."""
    modules, ops, overall = found
    stored = int(plain.stored_bytes * overall)
    change = stored - like.stored_bytes
    return replace(
        like,
        label=label,
        stored_bytes=stored,
        live_peak=like.live_peak + change,
        whole=like.whole + change,
        modules=_times(plain.modules, modules, overall),
        ops=_times(plain.ops, ops, overall),
    )


def _times(shares: list[Share], by: dict[str, float], overall: float) -> list[Share]:
    return [
        replace(each, stored_bytes=int(each.raw_bytes * by.get(each.name, overall)))
        for each in shares
    ]
