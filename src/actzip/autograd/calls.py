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

from actzip.autograd.identity import Key, Layout, Place, key_of, storage_of, tensors_in, unit_of
from actzip.autograd.norm_calls import norm_call
from actzip.autograd.slots import Node
from actzip.autograd.slots.derivations import drops, is_norm, is_relu, is_tame, repeats

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

    @property
    def numel(self) -> int:
        return self.nbytes // self.key[3].itemsize

    @staticmethod
    def before(edited: Tensor) -> Operand:
        """What this tensor was before its last edit: nobody has it, but it may be made again."""
        name, version, place, dtype = key_of(edited)
        nbytes = edited.numel() * edited.element_size()
        return Operand((name, version - 1, place, dtype), None, nbytes, weakref.ref(edited), None)

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
    like: Layout
    node: str  #: the op's, by name
    number: int  #: of that node

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", "op").strip("_")

    @property
    def operands(self) -> list[Operand]:
        return [a for a in (*self.args, *self.kwargs.values()) if isinstance(a, Operand)]


class Calls:
    """What the cheap ops of this pass made, by the keys of their results."""

    def __init__(self, lossy: bool) -> None:
        self.lossy = lossy  #: a function of about the same values will do
        self._made: dict[Key, Call] = {}
        self._by_node: dict[int, Call] = {}

    def of(self, key: Key) -> Call | None:
        return self._made.get(key)

    def of_node(self, number: int) -> Call | None:
        """The call that made the node with this number."""
        return self._by_node.get(number)

    def clear(self) -> None:
        self._made.clear()
        self._by_node.clear()

    def add(
        self, node: Node, out: Tensor, func: Any, args: tuple[Any, ...], kwargs: Any, noise: Any
    ) -> Iterator[Tensor]:
        """A call with this one node made `out`; gives back the tensors whose names must last.

        `noise`: the operand that the node of a dropout saved.
        """
        found = self._read(node, out, func, args, kwargs or {}, noise)
        if found is None or out._base is not None:
            return
        call = Call(*found, Layout.of(out), type(node).__name__, int(node._sequence_nr()))
        key = key_of(out)
        # an operand in the same memory is what was there before the op edited it
        if all(o.key[0] != key[0] or o.key[1] == key[1] - 1 for o in call.operands):
            self._made[key] = self._by_node[call.number] = call
            yield out
            yield from (t for o in call.operands if (t := o.now()) is not None)

    def _read(
        self, node: Node, out: Tensor, func: Any, args: tuple[Any, ...], kwargs: Any, noise: Any
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
        """The function that makes `out` again, and its arguments."""
        edits = bool(args) and out is args[0]
        if drops(func):
            known = noise is not None and args and isinstance(args[0], Tensor) and not edits
            return (torch.mul, (Operand.of(args[0]), noise), {}) if known else None
        if not repeats(func) or any(_is_nested(a) for a in (*args, *kwargs.values())):
            return None
        if not is_tame(node, args) if self.lossy else edits:
            return None
        given = tuple(_operand(a) for a in args)
        named = {name: _operand(a) for name, a in kwargs.items()}
        if edits:
            given = (Operand.before(out), *given[1:])
        if self.lossy and is_relu(node):
            return relu, given[:1], {}
        if self.lossy and is_norm(node):
            return norm_call(node, func, given, named)
        return (_Fresh(func) if edits else func), given, named


class _Fresh:
    """A function that edits its first argument, on a copy of it."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self.__name__ = getattr(function, "__name__", "op")

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return self._function(x.clone(), *args, **kwargs)


def relu(x: Tensor) -> Tensor:
    """A ReLU whose mask is known: who has the bits applies them, see `Stored`.

    x·mask rather than max(x, 0): of an unbiased code of x it is an unbiased code of the result.
    """
    return x


def _operand(a: Any) -> Any:
    return Operand.of(a) if isinstance(a, Tensor) and storage_of(a) is not None else a


def _is_nested(a: Any) -> bool:
    """Whether there are tensors where a call does not look, or that have no version."""
    if isinstance(a, Tensor):
        return storage_of(a) is None or a.is_inference()
    return bool(tensors_in(a))
