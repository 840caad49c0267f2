"""The values of a tensor that is not stored: a function of others that are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from actzip.autograd.calls import Call, Operand
from actzip.autograd.identity import Layout, Place
from actzip.autograd.stored import Source, Stored
from actzip.codecs import unsettled
from actzip.codecs.unsettled import Doubt
from actzip.torch_private import DisableTorchFunction

#: Tensors to compute with instead of what is stored.
Given = Mapping[Stored, Tensor]


@dataclass(slots=True, eq=False)
class Part:
    """An operand as it is stored."""

    stored: Stored
    place: Place | None

    def get(self, given: Given) -> Tensor:
        values = given.get(self.stored)
        if values is None:
            values = self.stored.tensor(given)
        return values if self.place is None else self.place.view(values)


@dataclass(eq=False)
class Derivation(Source):
    """`function(*args, **kwargs)` with a `Part` for each stored tensor."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    like: Layout
    copied: int  #: bytes of small operands that were copied for it
    doubt: Doubt | None = None  #: whether it comes back bit for bit is not known yet
    kept: Tensor | None = None  #: the tensor itself: it does not

    def __post_init__(self) -> None:
        given = (*self.args, *self.kwargs.values()) if self.kwargs else self.args
        self._parts = [a for a in given if type(a) is Part]

    @staticmethod
    def of(call: Call, found: Mapping[Operand, Part | Tensor]) -> Derivation:
        """The call with what was found of its operands: stored, or copied because it is small."""

        copied = 0
        for t in found.values():
            if isinstance(t, Tensor):
                copied += t.numel() * t.element_size()
        args = tuple([found[a] if type(a) is Operand else a for a in call.args])
        kwargs = call.kwargs and {
            n: found[a] if type(a) is Operand else a for n, a in call.kwargs.items()
        }
        return Derivation(call.name, call.function, args, kwargs, call.like, copied)

    @property
    def nbytes(self) -> int:
        """Of the small operands that were copied for it and for what it is made from."""
        found = self.copied
        for part in self._parts:
            if type(inner := part.stored.value) is Derivation:
                found += inner.nbytes
        return found

    @property
    def sources(self) -> list[Stored]:
        """The tensors that are stored for themselves, of which it is a function."""
        found: dict[Stored, None] = {}
        for part in self._parts:
            inner = part.stored.value
            if type(inner) is Derivation:
                found.update(dict.fromkeys(inner.sources))
            else:
                found[part.stored] = None
        return list(found)

    @property
    def sites(self) -> list[str]:
        return list(dict.fromkeys([source.site for source in self.sources]))

    @property
    def place(self) -> Place:  # type: ignore[override]
        return self.like.place

    def get(self, given: Given | None = None) -> Tensor:
        """The values, or what they would be with other ones in place of what is stored."""
        if self.doubt is not None:
            unsettled.look()
        if self.kept is not None and given is None:
            return self.kept.clone()
        made = self._make(given)
        return made if self.doubt is None or given is not None else self.doubt.correct(made)

    def _make(self, given: Given | None) -> Tensor:
        if given is None:  # each source is decoded once, however often it is read on the way
            given = {source: source.lend() for source in self.sources}
        args = [a.get(given) if type(a) is Part else a for a in self.args]
        kwargs = self.kwargs and {
            n: a.get(given) if type(a) is Part else a for n, a in self.kwargs.items()
        }
        kind = self.like.device.type
        with DisableTorchFunction():
            if torch.is_autocast_enabled(kind):
                with torch.autocast(kind, enabled=False):
                    out: Tensor = self.function(*args, **kwargs)
            else:  # to leave it takes ten calls
                out = self.function(*args, **kwargs)
        (size, stride, _), dtype, _ = self.like
        if out.dtype == dtype and out.stride() == stride:
            return out
        return torch.empty_strided(size, stride, dtype=dtype, device=out.device).copy_(out)

    def gives(self, t: Tensor) -> bool:
        """Whether it comes back bit for bit."""
        made = self.get({source: source.tensor() for source in self.sources})
        if made.dtype != t.dtype or made.size() != t.size() or made.stride() != t.stride():
            return False
        bits = _BITS.get(made.element_size())
        if bits is None:
            return False
        one, two = made.view(bits), t.detach().view(bits)  # NaN and signed zeros included
        if unsettled.reading_is_free(t.device):
            return torch.equal(one, two)
        unsettled.hold(self, t, (one != two).any().to(torch.int32))
        return True

    def holds(self, now: Tensor) -> bool:
        return unsettled.reading_is_free(now.device) and self.gives(now)

    def decided(self, doubt: Doubt, word: int) -> None:
        """Whether it comes back bit for bit is known now (codecs/unsettled.py)."""
        self.doubt = None
        self.kept = doubt.x.clone() if word else None  # a snapshot: it may be edited


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
