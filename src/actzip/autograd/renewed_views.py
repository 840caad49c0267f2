"""Views whose autograd node PyTorch makes anew when somebody asks for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def is_renewed(t: Tensor) -> bool:
    """Whether PyTorch may make a new node for t when somebody asks for the old one: t is a view,
    and its memory was edited. Asked for before the program does, it is older than it would be,
    backward comes to it later, and a sum of three gradients is rounded otherwise.
    """
    base = t._base
    if base is None or not base.requires_grad or t.is_inference():
        return False
    return t._version > 0


def is_given(out: Tensor, args: tuple[Any, ...], kwargs: Any) -> bool:
    """Whether a call's result is what it was called with; `tensor` is what nn.init fills."""
    if kwargs and (out is kwargs.get("out") or out is kwargs.get("tensor")):
        return True
    return bool(args) and out is args[0]


def hands_on(func: Any, given: Tensor) -> bool:
    """Whether a call gave back this view, which it was given, without a node for it: there is
    nothing to look at, and to ask could make one."""
    if not is_renewed(given):
        return False
    name = getattr(func, "__name__", "")
    edits = name.endswith("_") and name not in ("__get__", "requires_grad_")
    return not (edits and torch.is_grad_enabled())
