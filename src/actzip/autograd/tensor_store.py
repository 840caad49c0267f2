"""The stored tensors of one forward pass: each kept once, for the strongest of its needs.

Carries out decisions, and writes down who holds the bytes.
"""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from actzip.autograd.calls import Operand
from actzip.autograd.decision import Decision, Fate, Saved
from actzip.autograd.deferred_mask import DeferredMask
from actzip.autograd.derivation import Derivation
from actzip.autograd.identity import Key, Layout, Pins, Tally, Wanted, node_of, storage_of, unit_of
from actzip.autograd.ledger import Row
from actzip.autograd.offload import send
from actzip.autograd.recipe import Copy, Reader, View, unpack
from actzip.autograd.seeds import seeds
from actzip.autograd.sliced_tensor import beside, cut
from actzip.autograd.stored import Kept, Pool, Source, Stored, StoredByKey
from actzip.codecs import BitMask, Keep
from actzip.codecs.base import Codec, Payload
from actzip.codecs.registry import told
from actzip.memory.host_copies import Lane
from actzip.methods.base import STRENGTH, Role

_KEEP, _BITS = Keep(), BitMask()


class TensorStore:
    """What is stored, by key, and whose it is."""

    def __init__(self, pool: Pool, seed: int, swap: bool):
        self._pool = pool
        self._allocate, self._devices = pool.slabs.allocate, pool.devices
        self._seeds = seeds(seed)
        self._lane = Lane() if swap else None
        self._stored = StoredByKey()
        self.get = self._stored.get  #: what is stored of a key
        self._refs = self._stored.refs  # the same, for who asks for every tensor
        self._values: dict[Key, Row] = {}  # whose values they are
        self._bits: dict[Key, Row] = {}  # whose mask it is
        self._kept: dict[int, Row] = {}  # whose is the storage that autograd keeps
        self._exposed: set[int] = set()  # storages that can be edited without a new version
        self._raw, self._rest = Tally(), Tally()
        self._pins = Pins()
        self.pinned = self._pins.refs  #: by the names of the storages
        self.left: dict[Key, list[Saved]] = {}  #: autograd keeps it itself
        self.left_in: dict[int, int] = {}  #: how many such keys a storage has
        self.savers: dict[Key, set[int]] = {}  #: the nodes that saved it
        self.noise: dict[int, Operand] = {}  #: what the node of a dropout saved
        self.deferred = DeferredMask()
        self.scales = pool.scales  #: of dropouts

    def close(self) -> None:
        """The pass is over: nothing of its graph is held."""
        self._stored.clear()
        self.left.clear()
        self.left_in.clear()
        self.savers.clear()
        self.noise.clear()

    # -- what is there ---------------------------------------------------------------------

    def count(self, want: Wanted, storage: torch.UntypedStorage) -> int:
        """Bytes that saving it keeps alive, in its storage, and no tensor saved before does."""
        if want.key[0] not in self.pinned:
            self._pins.add(storage)
        own = want.key if want.unit is want.tensor else want.own
        return self._raw.add(want.tensor, own, storage.nbytes())

    def pin(self, t: Tensor) -> None:
        """Keep the name of its storage from being used again while this pass lasts."""
        storage = storage_of(t)
        if storage is not None:
            self._pins.add(storage)

    def expose(self, t: Tensor) -> None:
        """Somebody got hold of t's memory in a way that leaves no version: `.data`, numpy."""
        storage = storage_of(t)
        if storage is not None:
            self._pins.add(storage)
            self._exposed.add(int(storage._cdata))

    def is_exposed(self, key: Key) -> bool:
        """Whether its memory can be edited without a new version."""
        return key[0] in self._exposed

    def find(self, key: Key, role: Role, now: Tensor | None) -> tuple[Stored, Row] | None:
        """The stored tensor of this key if it is good enough for the role, and who holds it.

        `now` is the tensor as it is at this moment, if it is still there.
        """
        ref = self._refs.get(key)
        stored = None if ref is None else ref()
        if stored is None and not self.left:
            return None
        if key in self.left:
            saved = self.left[key][0]
            unit = saved.current
            if stored is None and unit is not None:
                kept = Kept(unit_of(unit)[0].detach(), key[1])
                stored = self._stored[key] = self.new(Role.EXACT, kept)
            return None if stored is None else (stored, saved.row)
        if stored is None or stored.value is None or STRENGTH[stored.role] < STRENGTH[role]:
            return None
        if not self.is_same(key, now, stored, now is not None and node_of(now) is None):
            del self._stored[key]  # its readers keep it; for this state of the memory there is none
            return None
        return stored, self._values[key]

    def is_same(self, key: Key, now: Tensor | None, stored: Stored, constant: bool) -> bool:
        """False when the memory was edited without a trace since it was stored: that may be if it
        was seen to be exposed, or is a constant (no op made it), such as an array's."""
        exposed = key[0] in self._exposed
        if now is None:
            return not exposed
        # what is made again was made in this pass: it is nobody's array
        coded = isinstance(stored.value, Payload)
        is_open = exposed or (constant and coded and now.device.type == "cpu")
        return not is_open or stored.holds(now)

    # -- what comes ------------------------------------------------------------------------

    def new(
        self, role: Role, value: Payload | Source | None, bits: Payload | None = None
    ) -> Stored:
        return Stored(self._pool.buffers, role, value, bits, self._pool.live)

    def encode(self, t: Tensor, codec: Codec, seed: int | None = None) -> Payload:
        """A payload, with a seed of its own unless one is given."""
        seed = next(self._seeds) if seed is None else seed
        payload = codec.encode(t, seed=seed, allocate=self._allocate)
        self._devices.add(t.device)
        return payload if self._lane is None else send(payload, self._lane)

    def pack(self, t: Tensor, parts: int) -> Payload:
        """One bit per element."""
        return self.encode(t, cut(_BITS, parts), seed=0)

    def settle(self) -> None:
        """Something else than a layer comes: a ReLU's result that waits is stored as it is now."""
        self.deferred.settle(self._packed)

    def keep(self, saved: Saved, decision: Decision) -> Reader | None:
        """Do as was decided; None when autograd keeps the tensor as it is."""
        row, fate, recipe = saved.row, decision.fate, decision.recipe
        row.fate = fate
        if recipe is None:
            self._leave(saved, decision.reason)
            return None
        stored = decision.source
        if stored is not None:
            assert decision.holder is not None, "a stored tensor is somebody's"
            row.shared_with = decision.holder.name
            stored.copied = stored.copied or isinstance(recipe, Copy)
        elif fate is Fate.SHAPE:
            row.codec = "shape only"
            stored = Stored(self._pool.buffers, Role.GEOMETRY)
        elif fate is Fate.DEFERRED:
            stored = self._defer(saved)
        elif fate is Fate.BITS:
            stored = self._put_bits(saved, decision.payload)
        elif decision.derivation is not None:
            stored = self._derive(saved, decision.derivation, decision.role or Role.EXACT)
            if row.role is Role.MASK:  # the mask is in what is made again
                stored.relu, self._bits[saved.want.key] = True, row
        else:
            assert decision.payload is not None, "stored without a payload"
            stored = self._put(saved, decision.payload, decision.role or row.site.role)
            if decision.role is Role.EXACT and saved.want.place is None and row.slot == "other":
                self.noise[saved.number] = Operand.of(saved.want.unit)
        return Reader(stored, recipe, saved.want.layout)

    def hold(self, row: Row, want: Wanted, reason: str) -> None:
        """Somebody keeps the tensor as it is: autograd, or an `autograd.Function` on its ctx."""
        t, key = want.tensor, want.key
        row.reason = reason
        first = self._kept.setdefault(key[0], row)
        row.stored_bytes = self._rest.add(t, want.own, t.untyped_storage().nbytes())
        if not row.stored_bytes:
            row.shared_with = first.name

    def _leave(self, saved: Saved, reason: str) -> None:
        """Autograd keeps t itself; whoever stored a copy of it can read it there for nothing."""
        row, (_, unit, _, key) = saved.row, saved.want
        self.hold(row, saved.want, reason)
        if key in self.left:
            self.left[key].append(saved)
        else:
            self.left[key] = [saved]
            self.left_in[key[0]] = self.left_in.get(key[0], 0) + 1
        stored = self._stored.get(key)
        if stored is not None and not stored.copied:
            stored.replace(Role.EXACT, Kept.of(unit))
            for owner in (self._values.get(key), self._bits.get(key)):
                _hand_over(owner, row)

    def _defer(self, saved: Saved) -> Stored:
        self.settle()
        key = saved.want.own
        stored = self._stored[key] = self.new(Role.MASK, Kept.of(saved.want.tensor))
        stored.relu = True
        self._bits[key] = saved.row
        self.deferred.defer(saved.row, saved.parts, stored)
        return stored

    def _put_bits(self, saved: Saved, bits: Payload | None) -> Stored:
        row, key = saved.row, saved.want.own
        assert bits is not None, "a mask without bits"
        row.codec, row.stored_bytes = repr(bits.codec), bits.nbytes
        stored = self.new(Role.MASK, None, bits)
        if key not in self._stored:
            self._stored[key], self._bits[key] = stored, row
        return stored

    def _packed(self, row: Row, t: Tensor, parts: int) -> Payload:
        bits = self.pack(t, parts)
        row.codec, row.stored_bytes, row.shared_with = repr(bits.codec), bits.nbytes, ""
        row.fate = Fate.BITS
        return bits

    def _derive(self, saved: Saved, derivation: Derivation, role: Role) -> Stored:
        row, key = saved.row, saved.want.key
        row.derived_from = ", ".join(derivation.sites)
        row.recipe = derivation.name
        row.stored_bytes += derivation.nbytes
        stored = self._stored.get(key)
        if stored is None or self._is_older(key, stored):
            stored = self._stored[key] = self.new(role, derivation)
        else:
            _hand_over(self._values.get(key), row)
            if role is Role.EXACT:  # the mask is in the values; those of a code may lose a sign
                _hand_over(self._bits.get(key), row)
                stored.replace(role, derivation)
            else:
                self.settle()
                stored.replace(role, derivation, bits=stored.bits)
        stored.site = row.name
        self._values[key] = row
        return stored

    def _put(self, saved: Saved, payload: Payload, role: Role) -> Stored:
        """Keep this payload for the tensor, and what its other readers need beside it."""
        row, (_, unit, _, key) = saved.row, saved.want
        ref = self._refs.get(key)
        stored = None if ref is None else ref()
        if stored is None or self._is_older(key, stored):
            pool = self._pool
            stored = Stored(pool.buffers, role, payload, None, pool.live)
            self._refs[key] = weakref.ref(stored)
        else:
            _hand_over(self._values.get(key), row)
            bits = stored.bits
            if stored.relu and payload.codec.keeps_mask:  # the mask is in the code: zero means off
                bits = None
                _hand_over(self._bits.get(key), row)
            elif stored.relu and not beside(bits, payload):  # it was, but this code cannot tell
                bits = self._packed(self._bits[key], unit, saved.parts)
            stored.replace(role, payload, bits=bits)
        stored.site = row.site.name
        self._values[key] = row
        known = payload.codec.__dict__.get("_told")
        row.codec, row.precision = told(payload.codec) if known is None else known
        row.stored_bytes = payload.nbytes
        row.lengths = payload.lengths
        return stored

    def _is_older(self, key: Key, stored: Stored) -> bool:
        """Whether it is a mask that may be of other values than the memory has now."""
        return stored.value is None and stored.bits is not None and self.is_exposed(key)

    # -- what a derivation needs -----------------------------------------------------------

    def fill(self, key: Key, role: Role, derivation: Derivation) -> Stored:
        """A ReLU's result of which only the bits are stored: its values can be made again."""
        stored, row = self._stored[key], self._bits[key]
        stored.replace(role, derivation, bits=stored.bits)
        stored.site, self._values[key] = row.name, row
        row.stored_bytes += derivation.nbytes
        return stored

    def take(self, key: Key, stored: Stored, unit: Tensor) -> None:
        """Store exactly what autograd kept by itself, and serve its slots from there."""
        payload = self.encode(unit, _KEEP)
        saves = self.left.pop(key)
        self.left_in[key[0]] -= 1
        holder = saves[0].row
        self._own(key, stored, payload, holder)
        for saved in saves:
            t, row = saved.current, saved.row
            assert t is not None, "asked for when it was taken"
            with torch.no_grad():
                reader = Reader(stored, View(unit_of(t)[1]), Layout.of(t))
            saved.raw.register_hooks(lambda _, reader=reader: reader, unpack)
            row.reason, row.fate, row.codec, row.stored_bytes = "", Fate.SHARED, "", 0
            row.shared_with = holder.name
        holder.fate, holder.shared_with = Fate.STORED, ""
        holder.codec, holder.stored_bytes = repr(payload.codec), payload.nbytes

    def add(self, key: Key, stored: Stored, unit: Tensor, row: Row) -> None:
        """Store exactly what nobody had, for this row's derivation."""
        payload = self.encode(unit, _KEEP)
        self._own(key, stored, payload, row)
        row.codec, row.stored_bytes = repr(payload.codec), row.stored_bytes + payload.nbytes

    def _own(self, key: Key, stored: Stored, payload: Payload, row: Row) -> None:
        stored.replace(Role.EXACT, payload)
        stored.site = row.name
        self._stored[key], self._values[key] = stored, row


def _hand_over(owner: Row | None, holder: Row) -> None:
    """The bytes counted at `owner` are gone; it reads what `holder` holds."""
    if owner is not None and owner is not holder:
        owner.stored_bytes, owner.codec, owner.shared_with = 0, "", holder.name
        owner.lengths = ()
        owner.fate = Fate.SHARED
