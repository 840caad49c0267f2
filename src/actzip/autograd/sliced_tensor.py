"""A saved tensor that backward reads a few samples at a time, so that it is never whole in memory.

Autograd takes any tensor from an unpack hook and calls the op's own backward with it. A `Sliced`
is a tensor without memory: when something reads it, PyTorch asks `__torch_dispatch__`. The formulas
of `microbatch_formulas.py` (convolution, batch norm, activations) decode one part after the other;
everything else gets the tensor whole. The forward pass, the graph and its nodes are the plain ones.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from actzip.autograd.microbatch_formulas import FORMULAS
from actzip.autograd.recipe import Bits, Reader, Shape, View
from actzip.autograd.slots import Node
from actzip.autograd.stored import Stored
from actzip.codecs.base import Codec, Payload
from actzip.codecs.split import Split, cuts
from actzip.control.op import Op
from actzip.torch_private import (
    disabled_torch_function,
    make_wrapper_subclass,
    not_compiled,
    tree_map_only,
)

_aten = torch.ops.aten


def parts_of(node: Node, op: Op, slot: str, t: Tensor, limit: int | None) -> int:
    """In how many parts the node's backward reads t: 1 unless its operands are over the limit."""
    if limit is None or t.dim() < 2 or op.sliced != slot:
        return 1
    operands: int = (t.numel() + math.prod(node._input_metadata[0].shape)) * t.itemsize
    return max(1, min(t.shape[0], -(-operands // limit)))


def cut(codec: Codec, parts: int) -> Codec:
    """The codec that stores a tensor so that it can be read in parts."""
    return codec if parts == 1 else Split(codec, parts)


def beside(bits: Payload | None, values: Payload) -> bool:
    """Whether a mask's bits are there, and can be read with the values, part by part."""
    if bits is None or not isinstance(values.codec, Split):
        return bits is not None
    return isinstance(bits.codec, Split) and bits.codec.parts == values.codec.parts


@not_compiled  # autograd calls it
def read(reader: Reader, parts: int) -> Tensor:
    """What backward gets for a reader: its tensor, decoded when it is read."""
    unseen = copy.copy(reader)
    unseen.seen = None  # who looks on is told once, and must not be held by what it holds
    t = Sliced(unseen, parts)
    if reader.seen is not None:
        reader.seen(t)
    return t


class Sliced(Tensor):
    """Looks like the saved tensor; decodes what is read of it, when it is read."""

    _reader: Reader
    _parts: int

    __torch_function__ = disabled_torch_function

    @staticmethod
    def __new__(cls, reader: Reader, parts: int) -> Sliced:
        (size, stride, _), dtype, device = reader.like
        t: Sliced = make_wrapper_subclass(cls, size, stride, dtype=dtype, device=device)
        t._reader, t._parts = reader, parts
        return t

    @classmethod
    @not_compiled
    def __torch_dispatch__(  # type: ignore[override]  # torch's own stub forgets the class
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is _aten.detach.default:  # autograd detaches what an unpack hook gives
            return Sliced(args[0]._reader, args[0]._parts)
        kwargs = kwargs or {}
        found = None
        if func is _aten.slice.Tensor:
            found = _samples(*args, **kwargs)
        elif func in FORMULAS and [i for i, a in enumerate(args) if isinstance(a, Sliced)] == [1]:
            found = FORMULAS[func](func, *args, **kwargs)
        if found is not None:
            return found
        args, kwargs = tree_map_only(Sliced, lambda t: t._reader.unpack(), (args, kwargs))
        return func(*args, **kwargs)

    def slices(self) -> Iterator[tuple[int, int, Tensor]]:
        """First and last sample (not included) of each part, and the part."""
        parts = _readers(self._reader, self._parts)
        if parts is not None:
            for first, last, reader in parts:
                yield first, last, reader.unpack()
            return
        whole = self._reader.unpack()
        for first, last in cuts(whole.shape[0], self._parts):
            yield first, last, whole[first:last]


def _samples(
    t: Sliced, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor | None:
    """t[start:end], from the parts that hold it; None when they cannot be read alone."""
    parts = _readers(t._reader, t._parts)
    if parts is None or dim != 0 or step != 1:
        return None
    start, end, _ = slice(start, end).indices(t.shape[0])
    found = [
        reader.unpack()[max(0, start - first) : end - first]
        for first, last, reader in parts
        if first < end and start < last
    ]
    return None if not found else found[0] if len(found) == 1 else torch.cat(found)


def _readers(reader: Reader, parts: int) -> list[tuple[int, int, Reader]] | None:
    """Readers like this one, of the parts; None when what is stored can only be read whole."""
    stored, recipe, size = reader.stored, reader.recipe, reader.like.place.size
    if isinstance(recipe, Shape):
        return [(a, b, _narrowed(reader, stored, b - a)) for a, b in cuts(size[0], parts)]
    if not isinstance(recipe, Bits) and recipe != View():
        return None
    masked = isinstance(recipe, Bits) and stored.bits is not None
    values, bits = {} if masked else _pieces(stored.value, size), _pieces(stored.bits, size)
    if stored.bits is not None and not masked and bits.keys() != values.keys():
        return None  # values need the bits that stand beside them, cut in the same places
    found = []
    for first, last in values or bits:
        value, bit = values.get((first, last)), bits.get((first, last))
        part = Stored(stored.buffers, stored.role, value, bit)
        part.relu = stored.relu
        found.append((first, last, _narrowed(reader, part, last - first)))
    return found or None


def _pieces(payload: object, size: tuple[int, ...]) -> dict[tuple[int, int], Payload]:
    """The parts of a payload by their first and last sample; none when it cannot be cut."""
    if not isinstance(payload, Payload) or not isinstance(payload.codec, Split):
        return {}
    if payload.shape != size:
        return {}
    return {(first, last): piece for first, last, piece in payload.codec.pieces(payload)}


def _narrowed(reader: Reader, stored: Stored, samples: int) -> Reader:
    narrow = copy.copy(reader)
    narrow.stored = stored
    place = reader.like.place
    narrow.like = reader.like._replace(place=place._replace(size=(samples, *place.size[1:])))
    return narrow
