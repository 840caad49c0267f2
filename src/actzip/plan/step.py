"""One training step of a plan: what is saved, and the most that tensors hold."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

import actzip
from actzip.memory.step_peak import held
from actzip.methods import Method
from actzip.plan.live_bytes import LiveBytes
from actzip.plan.target import Target
from actzip.report.modules import Share, by_module, by_op
from actzip.tasks.curve import POINTS, Curve, thinned
from actzip.tasks.profile import Profile
from actzip.torch_private import tree_leaves


@dataclass(frozen=True)
class Step(Profile):
    """Bytes of one step of a method, as predicted; the curve goes over ops instead of seconds."""

    batch: int
    whole: int  #: the live peak with weights, optimizer state and inputs: what must fit
    untold: tuple[str, ...] = ()  #: ops whose workspaces are not in it, as nobody tells their size


def step(target: Target, label: str, method: Method | None, batch: int, fake: Any) -> Step:
    """A forward and a backward pass of so many samples; without a method: PyTorch as it is."""
    with fake, _quiet():
        inputs = target.inputs(batch)
        beside = target.weights + target.state + held(_tensors(inputs))
        if method is None:
            live, curve = _passed(target, inputs)
        session = actzip.compress(target.model, method=method or "lossless")
        try:
            counted, coded = _passed(target, inputs)
        finally:
            session.remove()
        stats = session.stats()
        modules, ops, stored = by_module(stats), by_op(stats), stats.stored_bytes
        if method is None:
            modules, ops, stored = _kept(modules), _kept(ops), stats.raw_bytes
        else:
            live, curve = counted, coded
    return Step(
        label,
        stats.raw_bytes,
        stored,
        live.peak,
        modules,
        ops,
        curve,
        batch=batch,
        whole=beside + live.peak,
        untold=tuple(sorted(live.untold)),
    )


def _passed(target: Target, inputs: Any) -> tuple[LiveBytes, Curve]:
    """A forward and a backward pass, counted."""
    model = target.model
    model.zero_grad(set_to_none=True)
    gc.collect()
    before = [*model.parameters(), *model.buffers(), *_tensors(inputs)]
    live = LiveBytes(before, target.device)
    with live:
        loss = target.loss_of(inputs)
        forward = float(len(live.levels))
        loss.backward()
        del loss
    model.zero_grad(set_to_none=True)
    points = [(float(at), level) for at, level in enumerate(live.levels)]
    return live, Curve(thinned(points, POINTS), [("forward", forward), ("backward", points[-1][0])])


def _tensors(inputs: Any) -> list[Tensor]:
    return [t for t in tree_leaves(inputs) if isinstance(t, Tensor)]


def _kept(shares: list[Share]) -> list[Share]:
    """The same as PyTorch keeps them."""
    return [Share(each.name, each.raw_bytes, each.raw_bytes) for each in shares if each.raw_bytes]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():  # that a session may compress nothing is no news here
        warnings.simplefilter("ignore", actzip.ActzipWarning)
        yield
