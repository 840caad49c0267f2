"""Where in the model does this op run? The Python stack says so; nothing has to be kept in step.

Hooks on every submodule would cost a call each and lose their count when a forward raises.
The stack is read only for tensors that are large enough to matter.
"""

from __future__ import annotations

import sys
import weakref
from types import FrameType

from torch import nn

_CALL = nn.Module._call_impl.__code__


def _modules(frame: FrameType | None, last: nn.Module | None = None) -> list[nn.Module]:
    """The modules being called, innermost first, up to `last` if it is among them."""
    found = []
    while frame is not None:
        if frame.f_code is _CALL:
            module = frame.f_locals["self"]
            found.append(module)
            if module is last:
                break
        frame = frame.f_back
    return found


class Paths:
    """Names the innermost running module, relative to a root.

    With no root given, the outermost module on the stack is the root.
    """

    def __init__(self) -> None:
        self._names: weakref.WeakKeyDictionary[nn.Module, dict[int, str]]
        self._names = weakref.WeakKeyDictionary()

    def here(self, root: nn.Module | None) -> str | None:
        """The path of the running module, "" for the root; None when the root is not running."""
        running = _modules(sys._getframe(1), root)
        if root is None:
            return self._name(running[-1], running[0]) if running else ""
        if not running or running[-1] is not root:
            return None
        return self._name(root, running[0])

    def _name(self, root: nn.Module, module: nn.Module) -> str:
        names = self._names.get(root)
        if names is None or id(module) not in names:
            names = {id(m): name for name, m in root.named_modules()}
            names.setdefault(id(module), f"<{type(module).__name__}>")
            self._names[root] = names
        return names[id(module)]


def calls_of(root: nn.Module) -> int:
    """How many calls of `root` are running in this thread."""
    return sum(m is root for m in _modules(sys._getframe(1)))
