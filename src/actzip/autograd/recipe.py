"""How a slot is served: from that stored tensor, by this function.

A `Reader` is what autograd holds instead of a saved tensor: a stored tensor and a recipe. A part of
it, a cast or reordered copy, two values that stand in for the bits of a mask, or only the shape.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from actzip.autograd.identity import Layout, Place
from actzip.autograd.stored import Stored
from actzip.autograd.transforms import is_transforming, untransformed
from actzip.codecs.base import Payload
from actzip.codecs.memory_order import row_major
from actzip.torch_private import dispatch_modes, not_compiled, transform_level


class Recipe(ABC):
    """A function of a stored tensor."""

    @abstractmethod
    def make(self, stored: Stored, like: Layout) -> Tensor:
        """The slot's tensor."""

    def is_whole(self, like: Layout, shape: tuple[int, ...]) -> bool:
        """Whether element i of the slot is element i of the stored tensor."""
        return like.place.size == shape

    def put(self, full: Tensor, w: Tensor) -> None:
        """Write numbers for each element of the slot where the stored tensor has the element."""
        full.copy_(w)


@dataclass(frozen=True)
class View(Recipe):
    """The tensor itself, or the part of its memory at `place`."""

    place: Place | None = None

    def make(self, stored: Stored, like: Layout) -> Tensor:
        values = stored.tensor()
        return values if self.place is None else self.place.view(values)

    def is_whole(self, like: Layout, shape: tuple[int, ...]) -> bool:
        return self.place is None and super().is_whole(like, shape)

    def put(self, full: Tensor, w: Tensor) -> None:
        (full if self.place is None else self.place.view(full)).copy_(w)


#: The tensor itself.
WHOLE = View()


def view_at(place: Place | None) -> View:
    return WHOLE if place is None else View(place)


_NOWHERE = Place((), (), 0)


@dataclass(frozen=True)
class Copy(View):
    """A cast or reordered copy of the part `source`, laid out as `copy`, or a part of that copy."""

    source: Place | None = None
    copy: Place = _NOWHERE

    @staticmethod
    def of(copy: Tensor, source: Place | None, place: Place | None) -> Copy:
        return Copy(place, source, Layout.of(copy).place)

    def make(self, stored: Stored, like: Layout) -> Tensor:
        made = remake(stored.tensor(), self.source, self.copy, like.dtype)
        return made if self.place is None else self.place.view(made)

    def is_whole(self, like: Layout, shape: tuple[int, ...]) -> bool:
        return super().is_whole(like, shape) and self.source is None

    def put(self, full: Tensor, w: Tensor) -> None:
        if self.place is not None:
            size, stride, _ = self.copy
            copy = torch.empty_strided(size, stride, dtype=w.dtype, device=w.device)
            super().put(copy.zero_(), w)
            w = copy
        target = full if self.source is None else self.source.view(full)
        target.copy_(w if w.shape == target.shape else w.reshape(target.shape))


def remake(values: Tensor, source: Place | None, copy: Place, dtype: torch.dtype) -> Tensor:
    """The cast or reordered copy of the part `source` of a tensor, laid out as it was."""
    if source is not None:
        values = source.view(values)
    made = torch.empty_strided(copy.size, copy.stride, dtype=dtype, device=values.device)
    # a reshape that copied changes the shape too, and then both are in logical order
    return made.copy_(values if values.shape == made.shape else values.reshape(copy.size))


@dataclass(frozen=True)
class Bits(Recipe):
    """One bit per element decides the op's backward; `levels` stand in for off and on."""

    levels: tuple[float, float]

    def make(self, stored: Stored, like: Layout) -> Tensor:
        bits, value = stored.bits, stored.value
        if bits is None and isinstance(value, Payload) and not value.codec.exact:
            # from the codes, not from the values: dither may bring a small one back below zero
            return stored.mask(value)
        if bits is None:
            return stored.tensor()
        decoded = stored.decode(bits)
        if decoded.dtype == like.dtype and self.levels == (0.0, 1.0):
            return decoded
        off, on = (torch.tensor(v, dtype=like.dtype, device=decoded.device) for v in self.levels)
        values = torch.where(decoded.to(torch.bool), on, off)
        return values if values.stride() == like.place.stride else _laid_out(values, like)


def _laid_out(values: Tensor, like: Layout) -> Tensor:
    """The values in memory of the given strides; expanded dimensions are written once."""
    out = target = like._replace(device=values.device).empty()
    for dim, (size, stride) in enumerate(zip(like.place.size, like.place.stride, strict=True)):
        if stride == 0 and size > 1:
            target, values = target.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
    target.copy_(values)
    return out


@dataclass(frozen=True)
class Shape(Recipe):
    """Backward asks only for the shape: nothing is stored, and what comes back is unset memory."""

    def make(self, stored: Stored, like: Layout) -> Tensor:
        return stored.buffers.empty(like.place.size, like.place.stride, like.dtype, like.device)


class Reader:
    """What autograd holds instead of a saved tensor."""

    __slots__ = ("like", "name", "recipe", "seen", "stored")

    def __init__(self, stored: Stored, recipe: Recipe, like: Layout):
        stored.several = stored.several or stored.read
        stored.read = True
        self.stored = stored
        self.recipe = recipe
        self.like = like  #: of the saved tensor
        self.name = ""  #: of the slot that it stands in, as in the report
        self.seen: Callable[[Tensor], None] | None = None  #: is told what backward reads

    @not_compiled  # autograd calls it
    def unpack(self) -> Tensor:
        if transform_level() is not None or (dispatch_modes() and is_transforming()):
            # backward of an ordinary graph, called by a function under a transform
            with untransformed(), torch.no_grad():
                t = self._made()
        elif torch.is_grad_enabled():  # with create_graph
            with torch.no_grad():
                t = self._made()
        else:  # as `_made` does
            recipe, stored = self.recipe, self.stored
            t = stored.tensor() if recipe is WHOLE else recipe.make(stored, self.like)
            place, dtype, _ = self.like
            if t.dtype != dtype or t.size() != place.size or t.stride() != place.stride:
                self._refuse(t)
        if self.seen is not None:
            self.seen(t)
        return t

    @property
    def is_whole(self) -> bool:
        """Whether element i of what is read is element i of the stored tensor."""
        place = self.stored.place
        return place is not None and self.recipe.is_whole(self.like, place.size)

    @property
    def is_reshaped(self) -> bool:
        """Whether what is read is all of the stored tensor, in the same order, in another shape."""
        stored, read = self.stored.place, self.like.place
        if stored is None or type(self.recipe) is not View or self.recipe.place is None:
            return False
        if self.recipe.place.offset or math.prod(stored.size) != math.prod(read.size):
            return False
        return stored.stride == row_major(stored.size) and read.stride == row_major(read.size)

    def lift(self, w: Tensor | None) -> Tensor | None:
        """Numbers for each element that is read, brought to the shape of the stored tensor."""
        place = self.stored.place
        if w is None or place is None or self.is_whole:
            return w
        size, stride, _ = place
        if self.is_reshaped:
            return w.expand(self.like.place.size).reshape(size)
        full = torch.zeros(size, dtype=w.dtype, device=w.device)
        if stride != full.stride():
            full = torch.empty_strided(size, stride, dtype=w.dtype, device=w.device).zero_()
        self.recipe.put(full, w.expand(self.like.place.size))
        return full

    def _made(self) -> Tensor:
        t, (place, dtype, _) = self.recipe.make(self.stored, self.like), self.like
        if t.dtype != dtype or t.size() != place.size or t.stride() != place.stride:
            self._refuse(t)
        return t

    def _refuse(self, t: Tensor) -> None:
        place, dtype, _ = self.like
        raise RuntimeError(
            f"actzip gave back {t.dtype} {tuple(t.size())} strides {tuple(t.stride())} for "
            f"{dtype} {tuple(place.size)} strides {place.stride}; this is a bug in "
            "actzip, please report it with the model"
        )


#: A saved slot's hook.
unpack = Reader.unpack
