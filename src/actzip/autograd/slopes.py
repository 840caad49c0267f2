"""How an error in a stored tensor shows in what is made again from it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from actzip.autograd.derivation import Derivation
from actzip.autograd.stored import Stored
from actzip.codecs.base import Payload
from actzip.methods.base import Role


def coded(stored: Stored) -> list[Stored]:
    """The tensors whose codes its values have errors of: its own, or those it is made from."""
    if type(stored.value) is not Derivation:
        return [stored] if isinstance(stored.value, Payload) else []
    found = stored.value.sources
    return [s for s in found if s.role is not Role.EXACT and isinstance(s.value, Payload)]


def slopes(
    derived: Stored, values: Mapping[Stored, Tensor], w: Tensor | None
) -> dict[Stored, Tensor]:
    """Σⱼ (∂yⱼ/∂xᵢ)²·wⱼ for the stored tensors x that y is made from, weights w for each of y.

    Exact for functions of single elements, which all that is derived from codes are (a norm with
    the moments it had): each x meets one y, and the square of y's gradient by x is its slope².
    """
    if w is None:
        return {}
    with torch.enable_grad():
        leaves = {s: x.detach().requires_grad_() for s, x in values.items()}
        y = derived.tensor(leaves)
        root = w.expand(y.shape).clamp(min=0).sqrt().to(y.dtype)
        grads = torch.autograd.grad(y, list(leaves.values()), root, allow_unused=True)
    pairs = zip(leaves, grads, strict=True)
    return {s: g.float().square() for s, g in pairs if g is not None}


def unevenness(stored: Stored, x: Tensor) -> Tensor | None:
    """Error variance of each element of x, as decoded, in parts of that of the even code; None
    where that is the same for all."""
    codec = stored.value.codec if isinstance(stored.value, Payload) else None
    if codec is None or codec.even() == codec:
        return None
    largest, unit = codec.max_error(x), codec.even().max_error(x)
    return None if largest is None or unit is None else (largest / unit).square().float()
