"""Lossless: what can be stored smaller without changing one bit of any gradient."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from actzip.codecs.base import Codec
from actzip.methods.base import Derives, Site, Stateless


@dataclass(frozen=True)
class Lossless(Stateless):
    """Gradients equal plain PyTorch's bit for bit.

    Masks take one bit, indices the bits they need, shapes nothing, and a tensor that several
    ops read, or that is a copy of another, is stored once: all of that every method does. What a
    norm, an activation, arithmetic, a cast or a dropout makes again bit for bit from what is kept
    is not kept. An fp32 tensor that holds nothing but bfloat16 numbers takes 16 bits for each.
    """

    derives = Derives.EXACT

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        return None
