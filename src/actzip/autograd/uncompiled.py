"""Calls of compiled code that run as they are written, so that their ops can be watched.

PyTorch has a switch for that (`torch.compiler.set_stance`): nothing is compiled anew, and with the
switch back what was compiled runs on. It is thrown around a call and never inside one.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch

_local = threading.local()


def is_uncompiled() -> bool:
    """Whether this thread runs what is compiled as it is written, by `uncompiled`."""
    return getattr(_local, "stance", None) is not None


def can_be_uncompiled() -> bool:
    """Whether this torch has the switch, and there may be anything to switch."""
    # by name: importing Dynamo takes seconds, and who compiles has imported it
    return "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance")


def begin() -> bool:
    """From here to `end` nothing of this thread is compiled; False: that cannot be had here."""
    if is_uncompiled() or not can_be_uncompiled():
        return False
    try:
        _local.stance = _stance()
    except RuntimeError:  # inside of a compiled region
        return False
    return True


def end() -> None:
    stance, _local.stance = getattr(_local, "stance", None), None
    if stance is not None:
        stance.__exit__(None, None, None)


def _stance() -> Any:
    return torch.compiler.set_stance("force_eager")


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    begun = begin()
    try:
        yield
    finally:
        if begun:
            end()
