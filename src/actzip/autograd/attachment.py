"""Ties watchers to the forward calls of a module, whatever way a call ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from actzip.autograd.compiled import is_compiled, step_aside
from actzip.autograd.paths import calls_of
from actzip.autograd.watcher import Watcher
from actzip.torch_private import current_mode, get_tracing_state, pop_mode, push_mode

#: Makes the watcher of one forward call of a module.
Watch = Callable[[nn.Module], Watcher]


def _inert(*_: object) -> None:
    """What a copied or pickled model has where the original has an attachment."""


class _Hook:
    """A module hook whose copies do nothing: a deepcopy must not report to the original."""

    def __init__(self, attachment: Attachment, act: Callable[..., None]):
        self.attachment = attachment
        self.act = act

    def __call__(self, module: nn.Module, *args: Any) -> None:
        self.act(module, *args)

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return _make_inert, ()


def _make_inert() -> Callable[..., None]:
    return _inert


class _Call:
    """One running forward call; `watcher` is None when nothing is to be watched."""

    def __init__(self, watcher: Watcher | None, module: nn.Module):
        self.watcher = watcher
        self._handles: list[RemovableHandle] = []
        if watcher is not None and not is_compiled(module):
            push(watcher)
            self._handles = step_aside(
                module, leave=lambda: drop(watcher), enter=lambda: push(watcher)
            )

    def end(self) -> None:
        if self.watcher is not None:
            drop(self.watcher)
        for handle in self._handles:
            handle.remove()


class Attachment:
    """Watches every forward call of `model` in training mode with gradients enabled."""

    def __init__(self, model: nn.Module, watch: Watch):
        self._watch = watch
        self._local = threading.local()
        self._handles = [
            model.register_forward_pre_hook(_Hook(self, self._enter)),
            model.register_forward_hook(_Hook(self, self._exit), always_call=True),
        ]

    @staticmethod
    def of(model: nn.Module) -> Attachment | None:
        """The attachment a model has, if any."""
        for hook in model._forward_pre_hooks.values():
            if isinstance(hook, _Hook):
                return hook.attachment
        return None

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._unwind(0)

    @property
    def _calls(self) -> list[_Call]:
        """This thread's running calls of the model, outermost first."""
        if not hasattr(self._local, "calls"):
            self._local.calls = []
        calls: list[_Call] = self._local.calls
        return calls

    def _enter(self, module: nn.Module, args: object) -> None:
        self._unwind(calls_of(module) - 1)
        nested = any(call.watcher is not None for call in self._calls)
        idle = nested or not module.training or not torch.is_grad_enabled()
        idle = idle or get_tracing_state() is not None
        self._calls.append(_Call(None if idle else self._watch(module), module))

    def _exit(self, module: nn.Module, args: object, output: object) -> None:
        depth = calls_of(module)
        self._unwind(depth)
        if len(self._calls) == depth:
            call = self._calls.pop()
            call.end()
            if call.watcher is not None:
                call.watcher.finish(output)

    def _unwind(self, depth: int) -> None:
        """Drop what calls that ended without their exit hook left: a KeyboardInterrupt skips it."""
        while len(self._calls) > depth:
            self._calls.pop().end()


def push(watcher: Watcher) -> None:
    """Put a watcher on this thread's mode stack."""
    push_mode(watcher)


def drop(watcher: Watcher) -> None:
    """Take a watcher off this thread's mode stack, wherever it is on it."""
    above = []
    while (mode := current_mode()) is not None:
        pop_mode()
        if mode is watcher:
            break
        above.append(mode)
    for mode in reversed(above):
        push_mode(mode)
