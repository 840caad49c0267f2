"""Results of cheap ops, made again in backward from what they were made from.

The call is written down when such an op runs: the function, and where its operands can be found
again. It becomes a `Derivation`, a way to get the values, when autograd wants to save the result.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from actzip.autograd.identity import Key, Place, key_of, storage_of, tensors_in, unit_of
from actzip.autograd.slots.derivations import drops, repeats
from actzip.autograd.stored import Source, Stored
from actzip.torch_private import DisableTorchFunction

SNAPSHOT = 1 << 16  #: parameters and constants up to so many bytes are copied into a call


@dataclass(frozen=True, eq=False)
class Operand:
    """A tensor that an op read: the one it is a part of, and which part."""

    key: Key
    place: Place | None
    nbytes: int  #: of the one it is a part of
    unit: weakref.ref[Tensor]  #: that one
    small: Tensor | None  #: itself, if it is copied rather than looked for: a norm's weight

    @staticmethod
    def of(t: Tensor) -> Operand:
        unit, place = unit_of(t)
        nbytes = unit.numel() * unit.element_size()
        if nbytes <= SNAPSHOT:  # held: a small result may be gone before it is asked for
            return Operand(key_of(t), None, nbytes, weakref.ref(t), t.detach())
        return Operand(key_of(unit), place, nbytes, weakref.ref(unit), None)

    def now(self) -> Tensor | None:
        """The tensor to look for, if it is there and as it was when the op read it."""
        t = self.unit() if self.small is None else self.small
        return None if t is None or t._version != self.key[1] else t


@dataclass(frozen=True)
class Call:
    """`function(*args, **kwargs)` with an `Operand` for each tensor."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    layout: Place
    device: torch.device
    number: int  #: of the op's node

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", "op").strip("_")

    @property
    def operands(self) -> list[Operand]:
        return [a for a in (*self.args, *self.kwargs.values()) if isinstance(a, Operand)]


class Calls:
    """What the cheap ops of this pass made, by the keys of their results."""

    def __init__(self) -> None:
        self._made: dict[Key, Call] = {}

    def of(self, key: Key) -> Call | None:
        return self._made.get(key)

    def clear(self) -> None:
        self._made.clear()

    def add(
        self,
        number: int,
        out: Tensor,
        func: Any,
        args: tuple[Any, ...],
        kwargs: Any,
        noise: Operand | None,
    ) -> Iterator[Tensor]:
        """A call with one node, of this number, made `out`; gives back the tensors whose names must
        last.

        `noise`: what the node of a dropout saved.
        """
        if drops(func) and noise is not None and args and isinstance(args[0], Tensor):
            operands: tuple[Any, ...] = (Operand.of(args[0]), noise)
            call = Call(torch.mul, operands, {}, _layout(out), out.device, number)
        elif repeats(func):
            given = kwargs or {}
            if any(_is_nested(a) for a in (*args, *given.values())):
                return
            call = Call(
                func,
                tuple(_operand(a) for a in args),
                {name: _operand(a) for name, a in given.items()},
                _layout(out),
                out.device,
                number,
            )
        else:
            return
        key = key_of(out)
        if out._base is None and all(operand.key[0] != key[0] for operand in call.operands):
            self._made[key] = call
            yield out
            yield from (t for o in call.operands if (t := o.now()) is not None)


def _operand(a: Any) -> Any:
    return Operand.of(a) if isinstance(a, Tensor) and storage_of(a) is not None else a


def _is_nested(a: Any) -> bool:
    """Whether there are tensors where a call does not look."""
    if isinstance(a, Tensor):
        return storage_of(a) is None
    return bool(tensors_in(a))


def _layout(t: Tensor) -> Place:
    return Place.of(t, origin=int(t.storage_offset()))


@dataclass
class Part:
    """An operand as it is stored."""

    stored: Stored
    place: Place | None

    def get(self) -> Tensor:
        values = self.stored.tensor()
        return values if self.place is None else self.place.view(values)


@dataclass(eq=False)
class Derivation(Source):
    """The values of a tensor that is not stored: a function of others that are."""

    call: Call
    found: dict[Operand, Part | Tensor]  #: stored, or copied because it is small

    @property
    def nbytes(self) -> int:
        """Of the small operands that were copied for it."""
        return sum(
            inner.nbytes
            if isinstance(t, Part) and isinstance(inner := t.stored.value, Derivation)
            else t.numel() * t.element_size()
            if isinstance(t, Tensor)
            else 0
            for t in self.found.values()
        )

    @property
    def sites(self) -> list[str]:
        """The sites whose stored tensors it reads."""
        sites: dict[str, None] = {}
        for part in self.found.values():
            if isinstance(part, Part):
                inner = part.stored.value
                names = inner.sites if isinstance(inner, Derivation) else [part.stored.site]
                sites.update(dict.fromkeys(names))
        return list(sites)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.call.device

    def get(self) -> Tensor:
        call = self.call
        args = [self._value(a) for a in call.args]
        kwargs = {name: self._value(a) for name, a in call.kwargs.items()}
        still = torch.autocast(call.device.type, enabled=False)
        with torch.no_grad(), DisableTorchFunction(), still:
            out: Tensor = call.function(*args, **kwargs)
        if out.stride() == call.layout.stride:
            return out
        size, stride, _ = call.layout
        room = torch.empty_strided(size, stride, dtype=out.dtype, device=out.device)
        return room.copy_(out)

    def gives(self, t: Tensor) -> bool:
        """Whether it comes back bit for bit."""
        made = self.get()
        if made.dtype != t.dtype or made.size() != t.size() or made.stride() != t.stride():
            return False
        return _same_bits(made, t)

    def _value(self, a: Any) -> Any:
        if not isinstance(a, Operand):
            return a
        found = self.found[a]
        return found.get() if isinstance(found, Part) else found


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """Bit for bit, NaN and signed zeros included."""
    bits = _BITS.get(a.element_size())
    return bits is not None and torch.equal(a.view(bits), b.detach().view(bits))
