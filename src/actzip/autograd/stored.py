"""A tensor kept once for all its readers: in a code, by reference, or as a way to make it again.

When backward is through with a node its readers go, and the stored tensor with the last of them.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from actzip import planning
from actzip.autograd.identity import Key, Place
from actzip.autograd.offload import bring
from actzip.autograd.slots.noise import Scales
from actzip.codecs.base import Payload
from actzip.memory.buffers import Buffers, Slabs
from actzip.methods.base import Role
from actzip.torch_private import StorageWeakRef, storage_from_weak


class Source(ABC):
    """A way to get a tensor's values that is not a payload."""

    place: Place | None = None  #: shape and strides, of what is made again

    @abstractmethod
    def get(self, given: Any = None) -> Tensor:
        """The values, laid out as they were."""

    def holds(self, now: Tensor) -> bool:
        """Whether this memory, of which it is known that it may have been edited, has them."""
        return True


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
    def is_current(self) -> bool:
        return self.tensor._version == self.version

    def get(self, given: Any = None) -> Tensor:
        if not self.is_current:
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
        "_lent",
        "_live",
        "bits",
        "buffers",
        "copied",
        "read",
        "relu",
        "role",
        "several",
        "site",
        "value",
    )

    def __init__(
        self,
        buffers: Buffers,
        role: Role,
        value: Payload | Source | None = None,
        bits: Payload | None = None,
        live: dict[int, weakref.ref[Stored]] | None = None,
    ):
        """`live`: be among these as long as it is there."""
        self.buffers = buffers
        self.role = role
        self.value = value
        self.bits = bits
        self.relu = False  #: the bits are ReLU's: on where the value is positive
        self.copied = False  #: copies of it are read from here: edits of it must not reach them
        self.site = ""  #: the name of the site that its values are stored for
        self.read = self.several = False  #: a slot reads it, and more than one
        self._live = live
        if live is not None:
            live[id(self)] = weakref.ref(self)
        self._decoded: tuple[Any, Place, torch.dtype] | None = None
        self._lent: Tensor | None = None
        self._coded = bits is not None or isinstance(value, Payload)
        if self._coded:
            buffers.join()

    def __del__(self) -> None:
        if self._live is not None:
            self._live.pop(id(self), None)
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
    def place(self) -> Place | None:
        """The shape and strides of values that are stored or made again."""
        if isinstance(self.value, Payload):
            return Place(self.value.shape, self.value.stride, 0)
        return None if self.value is None else self.value.place

    @property
    def nbytes(self) -> int:
        """Bytes that are there only because of this object."""
        value = self.value.nbytes if isinstance(self.value, Payload) else 0
        return value + (self.bits.nbytes if self.bits is not None else 0)

    def replace(
        self, role: Role, value: Payload | Source | None, *, bits: Payload | None = None
    ) -> None:
        """Another need came: keep `value` instead, and only these bits of a mask."""
        self.role, self.value, self.bits = role, value, bits
        self._decoded = self._lent = None
        self._settle()

    def holds(self, now: Tensor) -> bool:
        """Whether the memory that was stored still has the values that were stored, as far as the
        code tells: a code and its seed give the same bytes for the same values."""
        if not isinstance(self.value, Payload):
            return self.value is None or self.value.holds(now)
        payload = bring(self.value)
        try:
            again = payload.codec.encode(now, seed=payload.seed)
        except ValueError:  # BitMask: other values than the two it had
            return False
        if again.lengths:
            return torch.equal(again.used(), payload.used())
        return torch.equal(again.data, payload.data)

    def tensor(self, given: Any = None) -> Tensor:
        """The values. Slots of one node that read one tensor (q, k, v) get one decoded copy.

        `given`: other tensors to compute a derived one from, see derivation.py
        """
        lent, self._lent = self._lent, None
        value = self.value
        if type(value) is Kept:  # isinstance asks in Python, as for every abstract class
            return value.get()
        assert value is not None, "a mask was asked for values"
        if self._decoded is not None and given is None:
            again = self._again(*self._decoded)
            if again is not None:
                del lent
                return again
        if not isinstance(value, Payload):
            made = self._masked(value.get(given))
            return made if given is not None else self._remember(made)
        decoded = self.decode(value)
        if self.relu and self.bits is not None and not value.codec.keeps_zeros:
            decoded.mul_(self.decode(self.bits))  # what ReLU made zero is known to be zero
        return self._remember(decoded) if self.several else decoded

    @staticmethod
    def _again(ref: Any, place: Place, dtype: torch.dtype) -> Tensor | None:
        """What was decoded before, if somebody still holds it."""
        storage = storage_from_weak(ref.cdata)
        if storage is None:
            return None
        if storage.device.type == "meta":  # a plan's
            return planning.tensor_of(storage, place, dtype)
        empty = torch.empty(0, dtype=dtype, device=storage.device)
        return empty.set_(storage, place.offset, place.size, place.stride)

    def lend(self) -> Tensor:
        """The values for something that is made from them: its own reader, which mostly comes next,
        finds them decoded."""
        self.several = True
        values = self.tensor()
        if isinstance(self.value, Payload) and self.buffers.lends:
            self._lent = values
        return values

    def _masked(self, made: Tensor) -> Tensor:
        """Of a ReLU that is not the last word: what its bits say is off is zero."""
        if not self.relu or self.bits is None:
            return made
        return torch.where(self.decode(self.bits).to(torch.bool), made, made.new_zeros(()))

    def _remember(self, values: Tensor) -> Tensor:
        """As long as somebody holds them nobody else needs to make them again."""
        ref = StorageWeakRef(values.untyped_storage())
        self._decoded = ref, Place.of(values), values.dtype
        return values

    def decode(self, payload: Payload) -> Tensor:
        if "away" in payload.__dict__:
            payload = bring(payload)
        device = payload.data.device
        room = self.buffers.empty(payload.shape, payload.stride, payload.dtype, device)
        return payload.codec.decode(payload, room)

    def mask(self, payload: Payload) -> Tensor:
        """Which elements were not zero, read from the codes."""
        payload = bring(payload)
        device = payload.data.device
        room = self.buffers.empty(payload.shape, payload.stride, payload.dtype, device)
        return payload.codec.mask(payload, out=room)


class StoredByKey:
    """Stored tensors that are still there, by their keys; a WeakValueDictionary that does not tidy
    up takes a third of the time, and a pass is soon over."""

    __slots__ = ("refs",)

    def __init__(self) -> None:
        self.refs: dict[Key, weakref.ref[Stored]] = {}

    def get(self, key: Key) -> Stored | None:
        ref = self.refs.get(key)
        return None if ref is None else ref()

    def __getitem__(self, key: Key) -> Stored:
        stored = self.get(key)
        if stored is None:
            raise KeyError(key)
        return stored

    def __setitem__(self, key: Key, stored: Stored) -> None:
        self.refs[key] = weakref.ref(stored)

    def __delitem__(self, key: Key) -> None:
        del self.refs[key]

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None

    def clear(self) -> None:
        self.refs.clear()


class Pool:
    """The memory of one session, and what is stored in it at this moment."""

    def __init__(self, decodes_once: bool = True) -> None:
        self.slabs = Slabs()
        self.buffers = Buffers(decodes_once)
        self.scales = Scales()
        self.devices: set[torch.device] = set()  #: of tensors that were stored
        self.live: dict[int, weakref.ref[Stored]] = {}  #: by id; a WeakSet takes ten times as long

    @property
    def nbytes(self) -> int:
        """Payload bytes held now, for all graphs that are alive."""
        found = [ref() for ref in list(self.live.values())]
        return sum(stored.nbytes for stored in found if stored is not None)
