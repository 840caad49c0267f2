"""Watchers inside watchers: the innermost one sees what runs, those around it wait.

A session on a part of a model, or around a few lines of its forward, wins for that part. Those
around it are taken off the mode stack meanwhile, so that no op pays for two of them, and put back
where they were: a mode of the user's that was entered after them must still leave before them.
"""

from __future__ import annotations

from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)

from actzip.autograd.watcher import Watcher


def begin(watcher: Watcher) -> None:
    """The watcher sees each op of this thread from now on; the ones at work wait."""
    stack = enumerate(_get_current_function_mode_stack())
    watcher.around = [(place, mode) for place, mode in stack if isinstance(mode, Watcher)]
    for _, other in watcher.around:
        drop(other)
        other.pause()
    push(watcher)


def end(watcher: Watcher) -> None:
    """It sees no more ops; those that waited for it go on."""
    drop(watcher)
    watcher.ended = True
    for place, other in watcher.around:
        if not other.ended:  # after an interrupt those around may have gone first
            other.resume()
            _put(other, place)
    watcher.around = []


def push(watcher: Watcher) -> None:
    """Put a watcher that does not wait for another one on this thread's mode stack."""
    if not watcher.paused:
        _push_mode(watcher)


def drop(watcher: Watcher) -> None:
    """Take a watcher off this thread's mode stack, wherever it is on it."""
    above: list[TorchFunctionMode] = []
    while (mode := _get_current_function_mode()) is not None:
        _pop_mode()
        if mode is watcher:
            break
        above.append(mode)
    _push_all(above)


def _put(watcher: Watcher, place: int) -> None:
    above = [_pop_mode() for _ in _get_current_function_mode_stack()[place:]]
    _push_mode(watcher)
    _push_all(above)


def _push_all(above: list[TorchFunctionMode]) -> None:
    for mode in reversed(above):
        _push_mode(mode)
