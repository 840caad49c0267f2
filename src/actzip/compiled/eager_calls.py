"""Has a compiled model run uncompiled where a method wants to look at the backward of a call.

A compiled graph shows no ops and no gradients between them. So the passes that a method learns from
run as they are written, watched like those of any model; all others run compiled. Nothing is
compiled anew: precision is chosen when a graph runs.

What decides must be outside of what is compiled. That is a hook on the module that
`torch.compile(model)` gave, and for `model.compile()` something around what it put into the model.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.compiler import is_compiling
from torch.utils.hooks import RemovableHandle

from actzip.autograd import uncompiled
from actzip.autograd.attachment import make_inert
from actzip.autograd.by_identity import ByIdentity
from actzip.autograd.compiled import inside
from actzip.autograd.module_paths import running_modules

Wants = Callable[[], bool]


class EagerCalls:
    """Of one session; `wants` says whether the next pass is to be looked at."""

    def __init__(self, wants: Wants):
        self._wants = wants
        self._wrappers: ByIdentity[nn.Module, None] = ByIdentity()
        self._handles: list[RemovableHandle] = []
        self._in_place: _InPlace | None = None

    def can_look(self, root: nn.Module | None) -> bool:
        """A graph of the model runs: whether the next call of it can run uncompiled."""
        if root is None or not root.training or not uncompiled.can_be_uncompiled():
            return False
        for module in running_modules():
            if inside(module) is not module:
                self.hook(module)
                return True
        if getattr(root, "_compiled_call_impl", None) is not None:
            self._enclose(root)
            return True
        return False

    @property
    def looks(self) -> bool:
        """Whether calls of a compiled model run uncompiled where that is wanted."""
        return bool(self._handles) or self._in_place is not None

    def find(self, root: nn.Module) -> None:
        """Before a resumed run's first call, which is to be looked at if the next one was: what
        `torch.compile` gave for the model holds it, and nothing else knows of it."""
        if getattr(root, "_compiled_call_impl", None) is not None:
            self._enclose(root)
        for found in gc.get_objects():
            if type(found).__name__ == "OptimizedModule" and inside(found) is root:
                self.hook(found)

    def hook(self, wrapper: nn.Module) -> None:
        """Decide at each call of what `torch.compile(model)` gave."""
        if wrapper not in self._wrappers:
            self._wrappers[wrapper] = None
            self._handles += [
                wrapper.register_forward_pre_hook(_Before(self._wants)),
                wrapper.register_forward_hook(_After(), always_call=True),
            ]

    def _enclose(self, root: nn.Module) -> None:
        if not isinstance(root._compiled_call_impl, _InPlace):
            self._in_place = _InPlace(root, self._wants)
            root._compiled_call_impl = self._in_place

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        if self._in_place is not None:
            self._in_place.remove()


class _Inert:
    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return make_inert, ()


class _Before(_Inert):
    def __init__(self, wants: Wants):
        self._wants = wants

    def __call__(self, module: nn.Module, args: object) -> None:
        if not is_compiling():
            uncompiled.end()  # of a call that an interrupt ended
            if inside(module).training and self._wants():
                uncompiled.begin()


class _After(_Inert):
    def __call__(self, module: nn.Module, args: object, output: object) -> None:
        if not is_compiling():
            uncompiled.end()


class _InPlace:
    """What `model.compile()` put into the model, or the model's own call."""

    def __init__(self, model: nn.Module, wants: Wants):
        self._model, self._wants = weakref.ref(model), wants
        self._compiled: Any = model._compiled_call_impl

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        model = self._model()
        if model is None or is_compiling() or not model.training or not self._wants():
            return self._compiled(*args, **kwargs)
        with uncompiled.uncompiled():
            return model._call_impl(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_compiled"], name)

    def remove(self) -> None:
        model = self._model()
        if model is not None and model._compiled_call_impl is self:
            model._compiled_call_impl = self._compiled
