"""compress(): the one function that a user calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from actzip import methods
from actzip.methods.base import Method
from actzip.session import Session, session_of
from actzip.torch_private import require
from actzip.warning import ActzipWarning

__all__ = ["ActzipWarning", "Session", "compress", "session_of"]


def compress(
    model: nn.Module | None = None,
    method: str | Method = "lossless",
    *,
    optimizer: torch.optim.Optimizer | None = None,
    min_bytes: int = 4096,
    seed: int = 0,
    guard: bool = False,
    eval_mode: bool = False,
    derive: bool | None = None,
    replace: bool = False,
    **options: Any,
) -> Session:
    """Keep the tensors that autograd saves in compressed form.

    With a model, every forward call of it in training mode is compressed from now on, until
    `session.remove()`. Without one, the session is a context manager around any code.

    A part of a compressed model can have a session of its own, a `with` inside its forward as
    well: the inner session wins for its part, and the outer one has the rest.

    method     a name with its options as keywords, or a method object such as `Lossless()`
    optimizer  for methods that read the optimizer's state, and to know when a step is over
    min_bytes  tensors in smaller storages are left alone
    seed       of the rounding; PyTorch's random streams are never touched
    guard      raise precision, with a warning, when gradients or losses leave their band
    derive     what a cheap op (norm, activation, arithmetic, dropout, cast) makes of a tensor that
               is stored is made again and not stored: `lossless` does so where it comes back bit
               for bit, other methods only with True, from what their codes give back; False: none
    eval_mode  compress passes with gradients in eval mode too (fine-tuning with frozen BatchNorm)
    replace    remove the session that the model has, if any
    """
    require()
    if model is not None and not isinstance(model, nn.Module):
        raise TypeError(
            f"compress needs an nn.Module, got {type(model).__name__}; without a model use "
            "`with actzip.compress(method=…):` around the code"
        )
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {optimizer!r}")
    for name, value in (("min_bytes", min_bytes), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{name} must be a whole number of at least 0, got {value!r}")
    chosen = methods.resolve(method, options)
    chosen = methods.Guarded(chosen) if guard else chosen
    old = None if model is None else session_of(model)
    if old is not None and not replace:
        raise ValueError(
            f"this {type(model).__name__} is compressed by another session already, {old!r}; call "
            "actzip.session_of(model).remove() first, or compress(model, …, replace=True)"
        )
    if old is not None:
        old.remove()
    return Session(model, chosen, optimizer, min_bytes, seed, eval_mode, derive)
