"""Where in the model does this op run? The Python stack says so; nothing has to be kept in step.

Hooks on every submodule would cost a call each and lose their count when a forward raises.
The stack is read only for tensors that are large enough to matter.
"""

from __future__ import annotations

import sys
import weakref
from types import FrameType

from torch import nn

from actzip.autograd.by_identity import ByIdentity
from actzip.autograd.uncompiled import is_uncompiled
from actzip.torch_private import module_call

_CALL = getattr(module_call, "__code__", None)
_OURS = 5  #: frames of the watcher, at least, from where it asks to the op
_COMPILES = ("_dynamo/eval_frame.py", "_dynamo\\eval_frame.py")


def is_call(frame: FrameType) -> bool:
    """Whether this frame is a call of a module."""
    return frame.f_code is _CALL


def _call(frame: FrameType | None) -> FrameType | None:
    """The innermost call of a module, from this frame outwards."""
    while frame is not None and frame.f_code is not _CALL:
        frame = frame.f_back
    return frame


def _modules(frame: FrameType | None) -> list[nn.Module]:
    """The modules being called, innermost first."""
    found = []
    frame = _call(frame)
    while frame is not None:
        found.append(frame.f_locals["self"])
        frame = _call(frame.f_back)
    return found


class Paths:
    """Names the innermost running module, relative to a root.

    With no root given, the outermost module on the stack is the root.
    """

    def __init__(self) -> None:
        self._names: ByIdentity[nn.Module, dict[int, str]] = ByIdentity()
        # the root that was asked for last, and its names
        self._last: tuple[weakref.ref[nn.Module], dict[int, str]] | None = None
        self._at = 0  # id of the frame in which a root was met last: where to ask first

    def here(self, root: nn.Module | None, running: nn.Module | None = None) -> str | None:
        """The path of the innermost module from the root; None when `running`, the root or a part
        of it that is called without it, is not running."""
        frame: FrameType | None = sys._getframe(_OURS)
        while frame is not None and frame.f_code is not _CALL:  # `_call`, written out
            frame = frame.f_back
        if frame is None:
            return "" if root is None else None
        module = frame.f_locals["self"]
        if root is None:
            root = _modules(frame)[-1]
        elif module is not (running or root) and not self._runs(running or root, frame.f_back):
            return None
        last = self._last
        if last is not None and last[0]() is root and (name := last[1].get(id(module))) is not None:
            return name
        return self._name(root, module)

    def inside(self, root: nn.Module | None) -> str:
        """The path of the innermost module that belongs to the root; graphs are modules too."""
        modules = _modules(sys._getframe(1))
        if root is None:
            root = modules[-1] if modules else None
        names = [] if root is None else [self._name(root, module) for module in modules]
        return next((name for name in names if not name.startswith("<")), "")

    def _runs(self, root: nn.Module, frame: FrameType | None) -> bool:
        """Whether this frame or one outside of it is a call of `root`.

        To ask a frame for its module costs more than to go on to the next.
        """
        at, outer = self._at, frame
        while outer is not None:
            if outer.f_code is _CALL and id(outer) == at and outer.f_locals["self"] is root:
                return True
            outer = outer.f_back
        while frame is not None:
            if frame.f_code is _CALL and frame.f_locals["self"] is root:
                self._at = id(frame)
                return True
            frame = frame.f_back
        return False

    def _name(self, root: nn.Module, module: nn.Module) -> str:
        names = self._names.get(root)
        if names is None or id(module) not in names:
            names = {id(m): name for name, m in root.named_modules()}
            names.setdefault(id(module), f"<{type(module).__name__}>")
            self._names[root] = names
        self._last = weakref.ref(root), names
        return names[id(module)]


def running_modules() -> list[nn.Module]:
    """The modules being called in this thread, the outermost first."""
    return _modules(sys._getframe(1))[::-1]


def runs_compiled(module: nn.Module) -> bool:
    """Whether this call of the module, the innermost one, is one of `torch.compile`'s."""
    if is_uncompiled():
        return False
    if getattr(module, "_compiled_call_impl", None) is not None:
        return True
    frame = _call(sys._getframe(1))
    for _ in range(4):
        if frame is None:
            return False
        if frame.f_code.co_filename.endswith(_COMPILES):
            return True
        frame = frame.f_back
    return False


def call_here() -> int:
    """The number of the innermost call of a module in this thread; 0 when there is none."""
    frame = _call(sys._getframe(1))
    return 0 if frame is None else id(frame)


def runs_in(call: int, above: int = 0) -> int:
    """Whether the call of that number runs around the innermost call of a module: so many frames
    above the caller's, or 0.

    `above`: where it was found before, which is asked first; to go from frame to frame takes long.
    Numbers may be used again: that of a call which an interrupt ended, by another module's call.
    """
    if above:
        try:
            if id(sys._getframe(above + 1)) == call:
                return above
        except ValueError:  # no such frame
            pass
    frame: FrameType | None = sys._getframe(1)
    above = 0
    while frame is not None and frame.f_code is not _CALL:
        frame, above = frame.f_back, above + 1
    while frame is not None:  # most often the next call outside, so frames are not told apart
        frame, above = frame.f_back, above + 1
        if id(frame) == call:
            return above
    return 0


def calls_of(root: nn.Module) -> int:
    """How many calls of `root` are running in this thread."""
    return sum(m is root for m in _modules(sys._getframe(1)))
