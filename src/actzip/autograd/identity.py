"""Which tensor is this? Storage, version and place in the storage say so; addresses never do.

Two saved tensors are one when they read the same memory in the same state. The memory is named
by its storage object under a weak reference, which keeps the name from being used again
(data pointers of freed tensors were: 15 false hits in a 20-layer toy), and the state by
PyTorch's own version counter, so an in-place edit makes a new tensor of it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from actzip import planning
from actzip.autograd.slots import COPIES, VIEWS, Node
from actzip.torch_private import free_weak

#: A view that reads less than this share of its base is stored by itself, not as its base.
SLICE = 1 / 8

_SAME = VIEWS | COPIES
_PLAIN = (Tensor, nn.Parameter)


_tuple: Any = tuple.__new__


class Place(NamedTuple):
    """Shape, strides and offset of a tensor in a storage, in elements."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @staticmethod
    def of(t: Tensor, origin: int = 0) -> Place:
        # as Place(…) does, without a call in between
        found: Place = _tuple(Place, (t.size(), t.stride(), t.storage_offset() - origin))
        return found

    @property
    def distinct(self) -> int:
        """How many elements of memory it reads; an expanded dimension counts once."""
        return math.prod(n if s else 1 for n, s in zip(self.size, self.stride, strict=True))

    def view(self, t: Tensor) -> Tensor:
        """The tensor at this place of t's memory, counted from t's first element."""
        return t.as_strided(self.size, self.stride, t.storage_offset() + self.offset)

    def within(self, numel: int) -> bool:
        """Whether every element lies among the first `numel` of the memory."""
        if self.offset < 0 or 0 in self.size:
            return False
        last = sum((n - 1) * s for n, s in zip(self.size, self.stride, strict=True))
        return self.offset + last < numel


#: storage, version, place, dtype: equal keys are equal values.
Key = tuple[int, int, Place, torch.dtype]


def node_of(t: Tensor) -> Any:
    """The node that made t, or None.

    PyTorch refuses to say for a view that was made under no_grad or by `split` or `unbind` and
    whose base was edited since; as long as nobody asks, such a view works.
    """
    try:
        return t.grad_fn
    except RuntimeError:
        return None


def storage_of(t: Tensor) -> torch.UntypedStorage | None:
    """None for a tensor that has none of the ordinary kind: sparse, nested, wrapped by torch.func,
    of a subclass."""
    kind = type(t)
    if (kind is not Tensor and kind is not nn.Parameter and not planning.is_fake(t)) or t.is_nested:
        return None
    try:
        return t.untyped_storage()
    except RuntimeError:
        return None


def key_of(t: Tensor) -> Key:
    return t.untyped_storage()._cdata, t._version, Place.of(t), t.dtype


def is_dense(t: Tensor) -> bool:
    """Whether t's elements fill one stretch of memory, in any order of dimensions."""
    if t.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(t.stride(), t.size(), strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def unit_of(t: Tensor) -> tuple[Tensor, Place | None]:
    """The tensor to store for t, and t's place in it (None when it is t itself).

    Views are looked through to their base: q, k and v of one projection, and the 2-D view that
    a Linear saves of a 3-D tensor, are one stored tensor. A thin slice stands for itself, and so
    does any slice of a constant: a batch cut from a data set must not bring the data set along.
    """
    base = t._base
    if base is None or base.dtype != t.dtype or not is_dense(base):
        return t, None
    if type(base) not in _PLAIN and not planning.is_fake(base):
        return t, None
    origin = int(base.storage_offset())
    place = Place.of(t, origin)
    if place == Place.of(base, origin):
        return base, None
    share = SLICE if node_of(base) is not None else 1.0
    if not place.within(base.numel()) or place.distinct < share * base.numel():
        return t, None
    return base, place


class Layout(NamedTuple):
    """What a tensor has to look like: autograd takes a wrong one without a word."""

    place: Place
    dtype: torch.dtype
    device: torch.device

    @staticmethod
    def of(t: Tensor) -> Layout:
        place = _tuple(Place, (t.size(), t.stride(), 0))
        found: Layout = _tuple(Layout, (place, t.dtype, t.device))
        return found

    def empty(self) -> Tensor:
        size, stride, _ = self.place
        return torch.empty_strided(size, stride, dtype=self.dtype, device=self.device)


class Wanted(NamedTuple):
    """A tensor that autograd saves, the one to store for it, and how that one is known."""

    tensor: Tensor
    unit: Tensor
    place: Place | None
    key: Key

    @staticmethod
    def of(t: Tensor, name: int) -> Wanted:
        """`name`: of t's storage."""
        unit, place = (t, None) if t._base is None else unit_of(t)
        found: Wanted = _tuple(
            Wanted, (t, unit, place, (name, unit._version, Place.of(unit), unit.dtype))
        )
        return found

    @property
    def layout(self) -> Layout:
        """That of the tensor itself."""
        t, unit, _, (_, _, place, dtype) = self
        if unit is not t or place.offset:
            return Layout.of(t)
        found: Layout = _tuple(Layout, (place, dtype, t.device))
        return found

    @property
    def own(self) -> Key:
        """The key of the tensor itself."""
        return self.key if self.unit is self.tensor else key_of(self.tensor)


def cost(t: Tensor, whole: int) -> int:
    """Bytes that saving t keeps alive: its whole storage; of a slice of a constant, the slice."""
    if t._base is None or node_of(t) is not None or node_of(t._base) is not None:
        return whole
    return min(whole, Place.of(t).distinct * t.itemsize)


class Pins:
    """Storages whose names are not used again as long as this lives."""

    def __init__(self) -> None:
        self.refs: dict[int, Any] = {}  #: by name; an object for each would take four calls

    def add(self, storage: torch.UntypedStorage) -> None:
        name = storage._cdata
        if name not in self.refs:
            self.refs[name] = storage._weak_ref()

    def __del__(self, free: Any = free_weak) -> None:  # bound: modules may be gone at the end
        for ref in self.refs.values():
            free(ref)


class Tally:
    """Adds up the bytes that tensors keep alive, each byte once."""

    def __init__(self) -> None:
        self._storages: dict[int, int] = {}  # bytes counted so far
        self._slices: set[Key] = set()

    def add(self, t: Tensor, key: Key, whole: int) -> int:
        """Bytes that t, known by its key, in a storage of `whole` bytes, keeps alive and none
        before it did."""
        counted = self._storages.get(key[0], 0)
        if key in self._slices:
            return 0
        self._slices.add(key)
        new = min(whole if t._base is None else cost(t, whole), whole - counted)
        self._storages[key[0]] = counted + new
        return new


def is_parameter(t: Tensor, node: Node | None) -> bool:
    """Whether t is a parameter, or a view or a cast copy of one, by the graph it came through.

    `node`: that made t
    """
    whole = t if t._base is None else t._base
    if type(whole) is not Tensor and isinstance(whole, nn.Parameter):  # which asks in Python
        return True
    if node is None:
        return False
    while type(node).__name__ in _SAME:
        node = node.next_functions[0][0]
    return type(node).__name__ == "AccumulateGrad" and isinstance(node.variable, nn.Parameter)


def is_cast(t: Tensor, args: list[Tensor], weights: set[int]) -> bool:
    """Whether t is autocast's copy of a frozen weight or buffer among a call's arguments.

    No graph leads from such a copy to its source, so shape and dtype must tell: at worst a
    constant of a weight's shape stays as it is.
    """
    base = t if t._base is None else t._base
    for a in args:
        if a.dtype == t.dtype or a.shape != base.shape or storage_of(a) is None:
            continue
        if is_parameter(a, node_of(a)) or a.untyped_storage()._cdata in weights:
            return True
    return False


def source_of(copy: Node, args: list[Tensor]) -> Tensor | None:
    """The tensor among a call's arguments that this clone or cast node copied."""
    parent, output = copy.next_functions[0]
    for a in args:
        if node_of(a) is parent and a.output_nr == output:
            return a
    return None


def tensors_in(value: object, depth: int = 2) -> list[Tensor]:
    """The tensors in an op's arguments or a model's output."""
    if isinstance(value, Tensor):
        return [value]
    if depth and isinstance(value, (tuple, list)):
        return [t for v in value for t in tensors_in(v, depth - 1)]
    if depth and isinstance(value, dict):
        return [t for v in value.values() for t in tensors_in(v, depth - 1)]
    return []
