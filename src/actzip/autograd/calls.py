"""Results of cheap ops, made again in backward from what they were made from.

The call is written down when such an op runs: the function, and where its operands can be found
again. It becomes a `Derivation`, a way to get the values, when autograd wants to save the result.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from actzip.autograd.identity import (
    Key,
    Layout,
    Place,
    key_of,
    node_of,
    storage_of,
    tensors_in,
    unit_of,
)
from actzip.autograd.norm_calls import norm_call
from actzip.autograd.slots import Node
from actzip.autograd.slots.derivations import (
    drops,
    is_bounded,
    is_norm,
    is_relu,
    is_tame,
    repeats,
)
from actzip.codecs import unsettled
from actzip.planning import is_fake

SNAPSHOT = 1 << 16  #: parameters and constants up to so many bytes are copied into a call
_NARROW = 1 / 16  #: of the peak of what an op reads: where its result has less, errors may not fit


@dataclass(slots=True, eq=False)  # not frozen: that takes three times as long to make
class Operand:
    """A tensor that an op read: the one it is a part of, and which part."""

    key: Key
    place: Place | None
    nbytes: int  #: of the one it is a part of
    unit: weakref.ref[Tensor]  #: that one
    small: Tensor | None  #: itself, if it is copied rather than looked for: a norm's weight
    constant: bool = False  #: no op made it

    @staticmethod
    def of(t: Tensor) -> Operand:
        unit, place = unit_of(t)
        nbytes = unit.numel() * unit.element_size()
        if nbytes <= SNAPSHOT:  # held: a small result may be gone before it is asked for
            constant = node_of(t) is None
            return Operand(key_of(t), None, nbytes, weakref.ref(t), t.detach(), constant)
        constant = node_of(unit) is None
        return Operand(key_of(unit), place, nbytes, weakref.ref(unit), None, constant)

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


@dataclass(slots=True, eq=False)
class Call:
    """`function(*args, **kwargs)` with an `Operand` for each tensor."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    like: Layout
    node: str  #: the op's, by name
    number: int  #: of that node
    narrow: bool = False  #: its result is small beside what it reads
    operands: list[Operand] = field(init=False)

    def __post_init__(self) -> None:
        self.operands = [a for a in self.args if isinstance(a, Operand)]
        if self.kwargs:
            self.operands += [a for a in self.kwargs.values() if isinstance(a, Operand)]

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", "op").strip("_")


class Calls:
    """What the cheap ops of this pass made, by the keys of their results."""

    def __init__(self, lossy: bool) -> None:
        self.lossy = lossy  #: a function of about the same values will do
        self._made: dict[Key, Call] = {}
        self._by_node: dict[int, Call] = {}
        self.of = self._made.get  #: the call whose result has this key
        self.of_node = self._by_node.get  #: the call that made the node with this number

    def clear(self) -> None:
        self._made.clear()
        self._by_node.clear()

    def add(
        self, node: Node, out: Tensor, func: Any, args: tuple[Any, ...], kwargs: Any, noise: Any
    ) -> Call | None:
        """A call with this one node made `out`; the names of its tensors must last.

        `noise`: the operand that the node of a dropout saved.
        """
        if out._base is not None:
            return None
        found = self._read(node, out, func, args, kwargs or {}, noise)
        if found is None:
            return None
        narrow = self.lossy and is_bounded(node) and _is_narrow(out, args)
        call = Call(*found, Layout.of(out), type(node).__name__, int(node._sequence_nr()), narrow)
        key = key_of(out)
        for operand in call.operands:
            # one in the same memory is what was there before the op edited it
            if operand.key[0] == key[0] and operand.key[1] != key[1] - 1:
                return None
        self._made[key] = self._by_node[call.number] = call
        return call

    def _read(
        self, node: Node, out: Tensor, func: Any, args: tuple[Any, ...], kwargs: Any, noise: Any
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
        """The function that makes `out` again, and its arguments."""
        edits = bool(args) and out is args[0]
        if drops(func):
            known = noise is not None and args and isinstance(args[0], Tensor) and not edits
            return (torch.mul, (Operand.of(args[0]), noise), {}) if known else None
        if not (is_tame(node, args) if self.lossy else not edits) or not repeats(func):
            return None
        each = _operands(args)
        more = _operands(kwargs.values()) if kwargs else []
        if each is None or more is None:
            return None
        given, named = tuple(each), dict(zip(kwargs, more, strict=True))
        if edits:
            given = (Operand.before(out), *given[1:])
        if self.lossy and is_relu(node):
            return relu, given[:1], {}
        if self.lossy and is_norm(node):
            return norm_call(node, func, given, named)
        return (_Fresh(func) if edits else func), given, named


def _is_narrow(out: Tensor, args: tuple[Any, ...]) -> bool:
    """An edit in place left nothing to compare with: that may be so."""
    x = args[0] if args else None
    if not isinstance(x, Tensor) or x.is_complex() or not out.numel():
        return False  # complex tensors are in no code
    if not unsettled.reading_is_free(out.device) or is_fake(out):
        return False
    return x is out or not peak(out) >= _NARROW * peak(x)


def peak(t: Tensor) -> float:
    least, most = t.detach().aminmax()
    return max(abs(float(least)), abs(float(most)))


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


_NUMBERS = {int, float, bool, type(None)}


def _operands(values: Iterable[Any]) -> list[Any] | None:
    """The arguments with an `Operand` for each tensor; None when there are tensors where a call
    does not look, or that have no version."""
    found: list[Any] = []
    for a in values:
        if isinstance(a, Tensor):
            # a negated or conjugated view has the key of what it is a view of, and other values
            if storage_of(a) is None or a.is_inference() or a.is_neg() or a.is_conj():
                return None
            found.append(Operand.of(a))
        elif isinstance(a, (tuple, list)) and _NUMBERS.issuperset(map(type, a)):
            found.append(a)  # a shape
        elif isinstance(a, (tuple, list, dict)) and tensors_in(a):
            return None
        else:
            found.append(a)
    return found
