"""Ties watchers to the forward calls of a module, whatever way a call ends."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.compiler import is_compiling
from torch.utils.hooks import RemovableHandle

from actzip.autograd.compiled import LISTENERS, inside, traced
from actzip.autograd.failures import Failures
from actzip.autograd.identity import tensors_in
from actzip.autograd.module_paths import call_here, calls_of, is_call, runs_compiled, runs_in
from actzip.autograd.nesting import begin, end
from actzip.autograd.uncompiled import begin as begin_uncompiled
from actzip.autograd.uncompiled import end as end_uncompiled
from actzip.autograd.watcher import Watcher
from actzip.torch_private import current_graph_task_id, get_tracing_state, not_compiled
from actzip.warning import warn

#: Makes the watcher of one forward call of a module.
Watch = Callable[[nn.Module], Watcher]

_CONTAINERS = (nn.ModuleList, nn.ModuleDict)


def _inert(*_: object) -> None:
    """What a copied or pickled model has where the original has an attachment."""


class _Hook:
    """A module hook whose copies do nothing: a deepcopy must not report to the original."""

    def __init__(self, attachment: Attachment, act: Callable[..., None], key: str = ""):
        self.attachment = attachment
        self.act = act
        self.key = key  #: of the session, for what is compiled; "": does not tell
        self.eval_mode = attachment.eval_mode

    @not_compiled
    def __call__(self, module: nn.Module, *args: Any) -> None:
        if is_compiling():  # Dynamo traces this: nothing of it may be in the graph
            if self.key and (module.training or self.eval_mode):
                traced(self.key)
            return
        self.act(module, *args)

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return make_inert, ()


def make_inert() -> Callable[..., None]:
    return _inert


class _Scripting:
    """`torch.jit.script` asks a module for this first: hooks cannot be scripted, so ours go, and
    what a copied or pickled model has in their place."""

    def __init__(self, model: nn.Module):
        self._model = weakref.ref(model)

    def __call__(self) -> nn.Module | None:
        model = self._model()
        attachments = {hook.attachment for hook in _hooks_of(model)}
        for attachment in attachments:
            attachment.remove()
        if attachments:
            warn(
                "torch.jit.script cannot take actzip's hooks along, so actzip let go of this "
                "model; call actzip.compress again when its training goes on"
            )
        if model is not None:
            for hooks in (model._forward_pre_hooks, model._forward_hooks):
                for name in [name for name, hook in hooks.items() if hook is _inert]:
                    del hooks[name]
        return model

    def __reduce__(self) -> tuple[type[_Scripting], tuple[nn.Module | None]]:
        return _Scripting, (self._model(),)


_SCRIPTING = "__prepare_scriptable__"


def _hooks_of(module: nn.Module | None) -> list[_Hook]:
    hooks = () if module is None else module._forward_pre_hooks.values()
    return [hook for hook in hooks if isinstance(hook, _Hook)]


class _Call:
    """One running forward call; `watcher` is None when nothing is to be watched."""

    def __init__(
        self, watcher: Watcher | None, module: nn.Module, leave: RemovableHandle | None = None
    ):
        self.watcher = watcher
        self.module = module
        self.number = call_here()
        self.above = 0  #: frames from a child's hook to this call, as it was the last time
        self._leave = leave
        self._uncompiled = False
        if watcher is not None:
            compiled = runs_compiled(module)
            if watcher.forward_pass.looks and not compiled and _has_compiled_parts(module):
                self._uncompiled = begin_uncompiled()
            begin(watcher, sees=not compiled)
            if compiled and (listener := LISTENERS.get(watcher.key)) is not None:
                listener.entered()

    def end(self) -> None:
        if self.watcher is not None:
            end(self.watcher)
        self._recompile()
        if self._leave is not None:
            self._leave.remove()

    def _recompile(self) -> None:
        if self._uncompiled:
            self._uncompiled = False
            end_uncompiled()

    def __del__(self) -> None:
        self._recompile()  # an interrupt ended it, and nobody called the model again

    def finish(self, output: object) -> None:
        self.end()
        if self.watcher is not None and _raised():
            self.watcher.abandon()
        elif self.watcher is not None:
            self.watcher.finish(output)


class Attachment:
    """Watches every forward call of `model` in training mode with gradients enabled.

    A child that is called while the model itself does not run (a Lightning module's
    `training_step` calls `self.net(x)`, or somebody calls `model.forward(x)`) is watched as well.
    """

    def __init__(
        self,
        model: nn.Module,
        watch: Watch,
        failures: Failures,
        eval_mode: bool = False,
        key: str = "",
    ):
        model = inside(model)
        self._watch = watch
        self._failures = failures
        self.eval_mode = eval_mode
        self._told_of_eval = eval_mode
        self._local = threading.local()
        children = list(_callable_children(model))
        self._handles = [
            model.register_forward_pre_hook(_Hook(self, self._enter, key)),
            model.register_forward_hook(_Hook(self, self._exit), always_call=True),
            *(c.register_forward_pre_hook(_Hook(self, self._enter_child, key)) for c in children),
        ]
        self._modules = [weakref.ref(module) for module in (model, *children)]
        for module in (model, *children):
            module.__dict__[_SCRIPTING] = _Scripting(module)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        for ref in self._modules:
            module = ref()
            if module is not None and not _hooks_of(module):
                module.__dict__.pop(_SCRIPTING, None)
        self._unwind(0)

    @property
    def _calls(self) -> list[_Call]:
        """This thread's running calls of the model, outermost first."""
        calls: list[_Call] | None = self._local.__dict__.get("calls")
        if calls is None:
            calls = self._local.calls = []
        return calls

    def _enter(self, module: nn.Module, args: object) -> None:
        self._unwind(calls_of(module) - 1)
        self._calls.append(_Call(self._watcher(module), module))

    def _watcher(self, module: nn.Module) -> Watcher | None:
        """A watcher for this call; None when there is nothing to watch, or one is at it."""
        idle = any(call.watcher is not None for call in self._calls)
        idle = idle or not torch.is_grad_enabled() or get_tracing_state() is not None
        if idle or not (module.training or self.eval_mode):
            return None
        try:
            return self._watch(module)
        except Exception as error:
            if not self._failures.contain(error):
                raise
            return None

    def _exit(self, module: nn.Module, args: object, output: object) -> None:
        depth = calls_of(module)
        self._unwind(depth)
        if len(self._calls) == depth:
            call = self._calls.pop()
            call.finish(output)
            if call.watcher is None and not self._told_of_eval and not module.training:
                self._tell_of_eval(output)

    def _enter_child(self, child: nn.Module, args: object) -> None:
        for call in reversed(self._local.__dict__.get("calls", ())):
            above = runs_in(call.number, call.above)
            if above:
                call.above = above
                return
        if current_graph_task_id() != -1:
            return  # a checkpoint computes it again in backward
        self._unwind(0)
        watcher = self._watcher(child)
        if watcher is not None:
            leave = child.register_forward_hook(_Hook(self, self._exit_child), always_call=True)
            self._calls.append(_Call(watcher, child, leave))

    def _exit_child(self, child: nn.Module, args: object, output: object) -> None:
        if calls_of(child) > 1 or not self._calls or self._calls[-1].module is not child:
            return
        self._calls.pop().finish(output)

    def _tell_of_eval(self, output: object) -> None:
        """Somebody may train in eval mode, with frozen BatchNorm say, and wonder."""
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors_in(output, depth=4)):
            self._told_of_eval = True
            warn(
                "this pass of the model has gradients but runs in eval mode, which actzip leaves "
                "alone; to train so, call actzip.compress(…, eval_mode=True), and to evaluate use "
                "torch.no_grad()"
            )

    def _unwind(self, depth: int) -> None:
        """Drop what calls that ended without their exit hook left: a KeyboardInterrupt skips it."""
        while len(self._calls) > depth:
            call = self._calls.pop()
            call.end()
            if call.watcher is not None:
                call.watcher.abandon()


def _has_compiled_parts(model: nn.Module) -> bool:
    """Whether a look would miss ops of it, because `torch.compile` runs a part."""
    return any(
        getattr(m, "_compiled_call_impl", None) is not None or inside(m) is not m
        for m in model.modules()
    )


def _callable_children(model: nn.Module) -> Iterator[nn.Module]:
    """What code outside the model may call instead of it; a list of modules cannot be called."""
    for child in model.children():
        if isinstance(child, _CONTAINERS):
            yield from _callable_children(child)
        elif not isinstance(child, nn.TransformerEncoderLayer):  # with a hook it is slow in eval
            yield child


def _raised() -> bool:
    """Whether the exit hook runs because forward raised: a module's call then handles it."""
    trace = sys.exc_info()[2]
    return trace is not None and is_call(trace.tb_frame)
