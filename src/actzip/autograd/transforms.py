"""Inside a transform of torch.func, or while make_fx writes down what runs, actzip steps aside.

There every op gives a tensor of the transform, of ours too: no memory to store, dead when the
transform ends. What autograd keeps for good it keeps of the ordinary tensors below, and these are
looked at when the transform's result comes out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from actzip.torch_private import (
    dispatch_mode,
    dispatch_modes,
    pop_transform,
    push_transform,
    transform_level,
    writing_down,
)

INSIDE = "tensors inside torch.func are left alone"


def is_transforming() -> bool:
    """Whether an op that runs now is a transform's."""
    if transform_level() is not None:
        return True
    return bool(dispatch_modes()) and dispatch_mode(writing_down) is not None


@contextlib.contextmanager
def untransformed() -> Iterator[None]:
    """Ops in here are ordinary ones."""
    waiting = []
    try:
        while transform_level() is not None:
            waiting.append(pop_transform())
        yield
    finally:
        while waiting:
            push_transform(waiting.pop())
