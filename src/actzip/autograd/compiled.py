"""Compiled submodules: the watcher steps aside while one runs.

torch.compile would trace the watcher into its graph. What a compiled module saves belongs to one
node (`CompiledFunctionBackward`) that is met by the next op; no rule knows its tensors, so they
are kept exactly and counted by that name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle


def is_compiled(module: nn.Module) -> bool:
    # by name: importing torch._dynamo takes seconds, and who compiles has imported it
    return type(module).__name__ == "OptimizedModule"


def step_aside(
    root: nn.Module, leave: Callable[[], None], enter: Callable[[], None]
) -> list[RemovableHandle]:
    """Call `leave` before and `enter` after each call of a compiled module inside root."""
    if "torch._dynamo" not in sys.modules:
        return []
    _teach_dynamo()
    before: Any = lambda *_: leave()  # noqa: E731
    after: Any = lambda *_: enter()  # noqa: E731
    handles = []
    for module in root.modules():
        if is_compiled(module):
            handles.append(module.register_forward_pre_hook(before, prepend=True))
            handles.append(module.register_forward_hook(after, always_call=True))
    return handles


def _teach_dynamo() -> None:
    """A compiled function, or `module.compile()`, has no hooks: there Dynamo must run our code
    as it is instead of tracing it. The ops are then seen one by one, at eager speed."""
    from torch._dynamo import trace_rules

    folder = str(Path(__file__).parent.parent)
    if not any(skipped.startswith(folder) for skipped in trace_rules.SKIP_DIRS):
        trace_rules.add("actzip")
