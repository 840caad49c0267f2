"""How an error in a stored tensor shows in what is made again from it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from actzip.autograd.derivation import Derivation
from actzip.autograd.stored import Stored
from actzip.codecs.base import Payload
from actzip.control.batchnorm_trail import Uneven
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
        # weights of a convolution are the same for all channels: expanded last, they take no room
        root = w.clamp(min=0).sqrt().to(y.dtype).expand(y.shape)
        grads = torch.autograd.grad(y, list(leaves.values()), root, allow_unused=True)
    del y, root  # what y was made by goes before squares are made
    found = {s: g for s, g in zip(leaves, grads, strict=True) if g is not None}
    del grads
    for s in found:
        found[s] = found[s].float().square()
    return found


def unevenness(stored: Stored, x: Tensor) -> Uneven | None:
    """Error variance of each element of x, as decoded, in parts of that of the even code, for some
    samples at a time; None where that is the same for all."""
    codec = stored.value.codec if isinstance(stored.value, Payload) else None
    if codec is None or codec.unevenness(x[:1]) is None:
        return None

    def of(first: int, last: int) -> Tensor:
        found = codec.unevenness(x[first:last])
        assert found is not None, "it told the first sample's"
        return found

    return of
