"""What torch.compile traces: nothing of ours gets into the graph, but Dynamo is told whose it is.

Dynamo traces the hooks of a compiled module and the watcher's own function: both ask `is_compiling`
first and then only tell, by `traced`, the key of their session. Nothing of that is in the graph,
which has no break; and because both read the key from an object, Dynamo guards on it: what was
compiled without a session, or for another one, is compiled anew. What becomes of the graph is the
business of actzip.compiled, which listens.
"""

from __future__ import annotations

import weakref
from typing import cast

import torch
from torch import nn


def inside(module: nn.Module) -> nn.Module:
    """The module that `torch.compile(module)` wraps; any other module itself."""
    # by name: importing torch._dynamo takes seconds, and who compiles has imported it
    while type(module).__name__ == "OptimizedModule":
        module = cast(nn.Module, module._orig_mod)
    return module


#: Who listens, by the key of a session.
LISTENERS: weakref.WeakValueDictionary[str, Listener] = weakref.WeakValueDictionary()


class Listener:
    """Is told that a graph is being traced inside a session."""

    def traced(self) -> None:
        """Dynamo traces code that runs in the session."""

    def entered(self) -> None:
        """A compiled module of the session is called, and may be compiled now."""


def traced(key: str) -> None:
    """Dynamo calls this while it traces, see below, and keeps nothing of it."""
    listener = LISTENERS.get(key)
    if listener is not None and not _is_exporting():
        listener.traced()


def _is_exporting() -> bool:
    return bool(getattr(torch.compiler, "is_exporting", bool)())  # from torch 2.8 on


# as torch.compiler.assume_constant_result does, which imports Dynamo
traced._dynamo_marked_constant = True  # type: ignore[attr-defined]
