"""What torch.compile traces is left alone.

A compiled graph saves its tensors in one node (`CompiledFunctionBackward`) that is met by the next
op; no rule knows them, so they are kept exactly and counted by that name. Dynamo traces the hooks
of a compiled module and the watcher's own function: both ask `is_compiling` first and then do
nothing, so that the graph is the one without actzip and has no break.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from actzip.torch_private import CodeAction, CodeStrategy, set_code_strategy
from actzip.warning import warn

_said = False
_F = TypeVar("_F", bound=Callable[..., Any])


def not_compiled(function: _F) -> _F:
    """Dynamo may inline this function, but neither it nor what it calls is compiled by itself: that
    would happen to every Python function that runs under `module.compile()`."""
    if set_code_strategy is not None and CodeStrategy is not None:
        strategy = CodeStrategy(CodeAction.SKIP, CodeAction.SKIP)
        set_code_strategy(function.__code__, strategy)
    return function


def is_compiled(module: nn.Module) -> bool:
    # by name: importing torch._dynamo takes seconds, and who compiles has imported it
    return type(module).__name__ == "OptimizedModule"


def say_that_it_is_compiled() -> None:
    """Once in a process. Dynamo calls this while it traces, see below, and keeps nothing of it."""
    global _said
    if not _said and not _is_exporting():
        _said = True
        warn(
            "this model runs compiled, and actzip leaves compiled graphs alone: what they save is "
            "kept exactly. Compress it without torch.compile, or compile other parts of the model"
        )


def _is_exporting() -> bool:
    return bool(getattr(torch.compiler, "is_exporting", bool)())  # from torch 2.8 on


# as torch.compiler.assume_constant_result does, which imports Dynamo
say_that_it_is_compiled._dynamo_marked_constant = True  # type: ignore[attr-defined]
