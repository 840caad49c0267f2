"""On which side of its channel's origin each value of a BatchNorm's input is, for a ReLU behind it.

BatchNorm's result rises or falls with its input in each channel, so a ReLU's mask is which values
are above one of them. A code that tells the two sides apart has the mask in it (autograd/
sign_exact.py); a graph has both tensors at hand, and finds the origins in them exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from actzip.autograd.sign_exact import below
from actzip.codecs import Dithered
from actzip.codecs.base import Codec


class Sides(NamedTuple):
    """Positive is what is above its channel's origin, or what is not, where that is flipped."""

    origins: tuple[float, ...]
    flipped: Tensor


def split(x: Tensor, relu: Tensor) -> Sides | None:
    """The origins of a tensor's channels; None where there are none that tell the mask."""
    if x.dim() < 2 or x.shape != relu.shape or not x.numel():
        return None
    on = relu > 0
    rest = [d for d in range(x.dim()) if d != 1]
    off_most = x.masked_fill(on, -torch.inf).amax(rest)
    on_least = x.masked_fill(~on, torch.inf).amin(rest)
    flipped = ~(off_most < on_least)
    found = torch.where(off_most.isneginf(), below(on_least, x.dtype, strictly=True), off_most)
    if bool(flipped.any()):
        on_most = x.masked_fill(~on, -torch.inf).amax(rest)
        off_least = x.masked_fill(on, torch.inf).amin(rest)
        if not bool((~flipped | (on_most < off_least)).all()):
            return None
        found = torch.where(flipped, on_most.to(found.dtype), found)
    return Sides(tuple(found.tolist()), flipped) if bool(found.isfinite().all()) else None


def tells(codec: Codec) -> bool:
    """Whether decoded values are on the sides on which they were."""
    return isinstance(codec, Dithered) and codec.origin is not None


def positive(codec: Codec, x: Tensor, flipped: Tensor) -> Tensor:
    """The mask, of what such a code gave back."""
    assert isinstance(codec, Dithered)
    assert codec.origin is not None, "a code without sides"
    given = codec.origin if isinstance(codec.origin, tuple) else (codec.origin,)
    shape = (1, -1, *(1 for _ in x.shape[2:]))
    origin = torch.tensor(given, dtype=torch.float64, device=x.device).to(x.dtype).view(shape)
    return (x > origin).logical_xor_(flipped.view(shape))
