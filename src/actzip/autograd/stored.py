"""One saved tensor: how it is kept, and how each reader gets its view of it back.

`Stored` is a tensor kept once; `Reader`s are what autograd holds in its place. When backward is
through with a node its readers go, and the stored tensor goes with the last of them.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from actzip.autograd.identity import Place
from actzip.autograd.offload import bring
from actzip.codecs.base import Payload
from actzip.memory.buffers import Buffers, Slabs
from actzip.methods.base import Role
from actzip.torch_private import StorageWeakRef, storage_from_weak


class Source(ABC):
    """A way to get a tensor's values that is not a payload."""

    device: torch.device

    @abstractmethod
    def get(self) -> Tensor:
        """The values, laid out as they were."""


@dataclass(frozen=True)
class Kept(Source):
    """A tensor held by reference: it is alive anyway, so sharing it costs nothing."""

    tensor: Tensor
    version: int

    @staticmethod
    def of(t: Tensor) -> Kept:
        # detached: a node's output kept with its grad_fn would be a cycle, and never be freed
        return Kept(t.detach(), t._version)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.tensor.device

    def get(self) -> Tensor:
        if self.tensor._version != self.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: a {self.tensor.dtype} tensor of shape "
                f"{tuple(self.tensor.shape)} is at version {self.tensor._version}, expected "
                f"version {self.version} instead. Plain PyTorch refuses this graph too; edit a "
                "clone instead."
            )
        return self.tensor


class Stored:
    """A tensor kept once for all its readers: its values, or only the bits of a mask."""

    __slots__ = (
        "__weakref__",
        "_coded",
        "_decoded",
        "bits",
        "buffers",
        "copied",
        "relu",
        "role",
        "site",
        "value",
    )

    def __init__(
        self,
        buffers: Buffers,
        role: Role,
        value: Payload | Source | None = None,
        bits: Payload | None = None,
        relu: bool = False,
    ):
        self.buffers = buffers
        self.role = role
        self.value = value
        self.bits = bits
        self.relu = relu  #: the bits are ReLU's: on where the value is positive
        self.copied = False  #: copies of it are read from here: edits of it must not reach them
        self.site = ""  #: the name of the site that its values are stored for
        self._decoded: tuple[StorageWeakRef, Place, torch.dtype] | None = None
        self._coded = False
        self._settle()

    def __del__(self) -> None:
        if self._coded:
            self.buffers.leave()

    def _settle(self) -> None:
        """Buffers are held only while some payload may still ask for one."""
        coded = self.bits is not None or isinstance(self.value, Payload)
        if coded and not self._coded:
            self.buffers.join()
        elif self._coded and not coded:
            self.buffers.leave()
        self._coded = coded

    @property
    def nbytes(self) -> int:
        """Bytes that are there only because of this object."""
        value = self.value.nbytes if isinstance(self.value, Payload) else 0
        return value + (self.bits.nbytes if self.bits is not None else 0)

    def replace(
        self, role: Role, value: Payload | Source | None, *, bits: Payload | None = None
    ) -> None:
        """Another need came: keep `value` instead, and only these bits of a mask."""
        self.role, self.value, self.bits, self._decoded = role, value, bits, None
        self._settle()

    def holds(self, now: Tensor) -> bool:
        """Whether the memory that was stored still has the values that were stored, as far as the
        code tells: a code and its seed give the same bytes for the same values."""
        if not isinstance(self.value, Payload):
            return True
        payload = bring(self.value)
        again = payload.codec.encode(now, seed=payload.seed)
        return torch.equal(again.data, payload.data)

    def tensor(self) -> Tensor:
        """The values. Slots of one node that read one tensor (q, k, v) get one decoded copy."""
        if isinstance(self.value, Kept):
            return self.value.get()
        assert self.value is not None, "a mask was asked for values"
        if self._decoded is not None:
            ref, place, dtype = self._decoded
            storage = storage_from_weak(ref.cdata)
            if storage is not None:
                empty = torch.empty(0, dtype=dtype, device=storage.device)
                return empty.set_(storage, place.offset, place.size, place.stride)
        if isinstance(self.value, Source):
            return self._remember(self.value.get())
        decoded = self.decode(self.value)
        if self.relu and self.bits is not None and not self.value.codec.keeps_zeros:
            decoded.mul_(self.decode(self.bits))  # what ReLU made zero is known to be zero
        return self._remember(decoded)

    def _remember(self, values: Tensor) -> Tensor:
        """As long as somebody holds them nobody else needs to make them again."""
        storage = StorageWeakRef(values.untyped_storage())
        self._decoded = storage, Place.of(values), values.dtype
        return values

    def decode(self, payload: Payload) -> Tensor:
        payload = bring(payload)
        return payload.codec.decode(payload, out=self.room(payload))

    def mask(self, payload: Payload) -> Tensor:
        """Which elements were not zero, read from the codes."""
        payload = bring(payload)
        return payload.codec.mask(payload, out=self.room(payload))

    def room(self, payload: Payload) -> Tensor:
        """Memory for the decoded tensor."""
        device = payload.data.device
        return self.buffers.empty(payload.shape, payload.stride, payload.dtype, device)


class Pool:
    """The memory of one session, and what is stored in it at this moment."""

    def __init__(self) -> None:
        self.slabs = Slabs()
        self.buffers = Buffers()
        self.live: weakref.WeakSet[Stored] = weakref.WeakSet()

    @property
    def nbytes(self) -> int:
        """Payload bytes held now, for all graphs that are alive."""
        return sum(stored.nbytes for stored in list(self.live))


class Reader:
    """What autograd holds instead of a saved tensor: a place in a stored one."""

    __slots__ = ("dtype", "name", "place", "seen", "stored", "unit")

    def __init__(self, stored: Stored, t: Tensor, place: Place | None):
        self.stored = stored
        self.place = place
        self.unit = Place.of(t, origin=int(t.storage_offset()))
        self.dtype = t.dtype
        self.name = ""  #: of the slot that it stands in, as in the report
        self.seen: Callable[[Tensor], None] | None = None  #: is told what backward reads

    def unpack(self) -> Tensor:
        if torch.is_grad_enabled():  # with create_graph
            with torch.no_grad():
                t = self._checked(self._read())
        else:
            t = self._checked(self._read())
        if self.seen is not None:
            self.seen(t)
        return t

    def lift(self, w: Tensor | None) -> Tensor | None:
        """Numbers for each element that is read, brought to the shape of the stored tensor."""
        value = self.stored.value
        if w is None or not isinstance(value, Payload) or self._is_whole(value.shape):
            return w
        full = torch.zeros(value.shape, dtype=w.dtype, device=w.device)
        if value.stride != full.stride():
            full = torch.empty_strided(value.shape, value.stride, dtype=w.dtype, device=w.device)
            full.zero_()
        self._put(full, w.expand(self.unit.size))
        return full

    def _is_whole(self, shape: tuple[int, ...]) -> bool:
        return self.place is None and self.unit.size == shape

    def _put(self, full: Tensor, w: Tensor) -> None:
        (full if self.place is None else self.place.view(full)).copy_(w)

    def _read(self) -> Tensor:
        values = self.stored.tensor()
        return values if self.place is None else self.place.view(values)

    def _checked(self, t: Tensor) -> Tensor:
        # autograd takes a wrong dtype or stride from unpack without a word
        unit = self.unit
        if t.dtype != self.dtype or t.size() != unit.size or t.stride() != unit.stride:
            raise RuntimeError(
                f"actzip gave back {t.dtype} {tuple(t.size())} strides {tuple(t.stride())} for "
                f"{self.dtype} {tuple(unit.size)} strides {unit.stride}; this is a bug in "
                "actzip, please report it with the model"
            )
        return t


class CopyReader(Reader):
    """A saved tensor that is a cast or a reordered copy of a stored one: made again from it."""

    __slots__ = ("layout", "source")

    def __init__(
        self, stored: Stored, source: Place | None, layout: Tensor, t: Tensor, place: Place | None
    ):
        super().__init__(stored, t, place)
        self.source = source
        self.layout = Place.of(layout, origin=int(layout.storage_offset()))

    def _read(self) -> Tensor:
        copy = remake(self.stored.tensor(), self.source, self.layout, self.dtype)
        return copy if self.place is None else self.place.view(copy)

    def _is_whole(self, shape: tuple[int, ...]) -> bool:
        return super()._is_whole(shape) and self.source is None

    def _put(self, full: Tensor, w: Tensor) -> None:
        if self.place is not None:
            layout = self.layout
            copy = torch.empty_strided(layout.size, layout.stride, dtype=w.dtype, device=w.device)
            super()._put(copy.zero_(), w)
            w = copy
        target = full if self.source is None else self.source.view(full)
        target.copy_(w if w.shape == target.shape else w.reshape(target.shape))


def remake(values: Tensor, source: Place | None, layout: Place, dtype: torch.dtype) -> Tensor:
    """The cast or reordered copy of the part `source` of a tensor, laid out as it was."""
    if source is not None:
        values = source.view(values)
    copy = torch.empty_strided(layout.size, layout.stride, dtype=dtype, device=values.device)
    # a reshape that copied changes the shape too, and then both are in logical order
    return copy.copy_(values if values.shape == copy.shape else values.reshape(layout.size))


class MaskReader(Reader):
    """One bit per element decides the op's backward; `levels` stand in for off and on."""

    __slots__ = ("levels",)

    def __init__(self, stored: Stored, t: Tensor, levels: tuple[float, float]):
        super().__init__(stored, t, None)
        self.levels = levels

    def _read(self) -> Tensor:
        bits, value = self.stored.bits, self.stored.value
        if bits is None and isinstance(value, Payload):
            # from the codes, not from the values: dither may bring a small one back below zero
            return self.stored.mask(value)
        if bits is None:
            return super()._read()
        decoded = self.stored.decode(bits)
        if decoded.dtype == self.dtype and self.levels == (0.0, 1.0):
            return decoded
        off, on = (torch.tensor(v, dtype=self.dtype, device=decoded.device) for v in self.levels)
        values = torch.where(decoded.to(torch.bool), on, off)
        return values if values.stride() == self.unit.stride else _laid_out(values, self.unit)


def _laid_out(values: Tensor, place: Place) -> Tensor:
    """The values in memory of the given strides; expanded dimensions are written once."""
    out = torch.empty_strided(place.size, place.stride, dtype=values.dtype, device=values.device)
    target = out
    for dim, (size, stride) in enumerate(zip(place.size, place.stride, strict=True)):
        if stride == 0 and size > 1:
            target, values = target.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
    target.copy_(values)
    return out


class ShapeReader(Reader):
    """Backward asks only for the shape: nothing is stored, and what comes back is unset memory."""

    __slots__ = ("device",)

    def __init__(self, stored: Stored, t: Tensor):
        super().__init__(stored, t, None)
        self.device = t.device

    def _read(self) -> Tensor:
        unit = self.unit
        return self.stored.buffers.empty(unit.size, unit.stride, self.dtype, self.device)
