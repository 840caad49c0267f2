"""Watchers inside watchers: the innermost one sees what runs, those around it wait.

A session on a part of a model, or around a few lines of its forward, wins for that part. Those
around it are taken off the mode stack meanwhile, so that no op pays for two of them, and put back
where they were: a mode of the user's that was entered after them must still leave before them.
"""

from __future__ import annotations

import threading

from torch.overrides import TorchFunctionMode

from actzip.autograd.watcher import Watcher
from actzip.torch_private import current_mode, mode_stack, pop_mode, push_mode

_local = threading.local()


def at_work() -> list[Watcher]:
    """This thread's watchers that began and did not end, outermost first. (The mode stack does not
    tell: it is empty while a compiled graph runs.)"""
    if not hasattr(_local, "watchers"):
        _local.watchers = []
    watchers: list[Watcher] = _local.watchers
    return watchers


def begin(watcher: Watcher, sees: bool = True) -> None:
    """The watcher sees each op of this thread from now on; the ones at work wait.

    sees  False: what runs is compiled. Dynamo would trace the watcher with each op, and cannot with
          some (`Tensor.unflatten`); nodes that are not of compiled graphs are met at the end
    """
    at_work().append(watcher)
    stack = enumerate(mode_stack())
    watcher.around = [(place, mode) for place, mode in stack if isinstance(mode, Watcher)]
    for _, other in watcher.around:
        drop(other)
        other.pause()
    if sees:
        push(watcher)


def end(watcher: Watcher) -> None:
    """It sees no more ops; those that waited for it go on."""
    drop(watcher)
    if watcher in at_work():
        at_work().remove(watcher)
    watcher.ended = True
    for place, other in watcher.around:
        if not other.ended:  # after an interrupt those around may have gone first
            other.resume()
            _put(other, place)
    watcher.around = []


def push(watcher: Watcher) -> None:
    """Put a watcher that does not wait for another one on this thread's mode stack."""
    if not watcher.paused:
        push_mode(watcher)


def drop(watcher: Watcher) -> None:
    """Take a watcher off this thread's mode stack, wherever it is on it."""
    above: list[TorchFunctionMode] = []
    while (mode := current_mode()) is not None:
        pop_mode()
        if mode is watcher:
            break
        above.append(mode)
    _push_all(above)


def _put(watcher: Watcher, place: int) -> None:
    above = [pop_mode() for _ in mode_stack()[place:]]
    push_mode(watcher)
    _push_all(above)


def _push_all(above: list[TorchFunctionMode]) -> None:
    for mode in reversed(above):
        push_mode(mode)
