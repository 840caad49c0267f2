"""The stored tensors of one forward pass: each kept once, for the strongest of its needs."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from actzip.autograd.copies import Copies
from actzip.autograd.deferred_mask import Waiting
from actzip.autograd.derive import Derive, Save
from actzip.autograd.identity import Key, Tally, Wanted, node_of, storage_of, tensors_in, unit_of
from actzip.autograd.ledger import Row
from actzip.autograd.offload import send
from actzip.autograd.recipes import Operand, Recipes
from actzip.autograd.seeds import seeds
from actzip.autograd.sliced_tensor import beside, cut, parts_of
from actzip.autograd.slots import Node, Rule, op
from actzip.autograd.slots.conventions import agreeing, unknown_convention
from actzip.autograd.slots.masks import RELU
from actzip.autograd.slots.noise import noise
from actzip.autograd.slots.windows import integers
from actzip.autograd.stored import (
    CopyReader,
    Kept,
    MaskReader,
    Pool,
    Reader,
    ShapeReader,
    Source,
    Stored,
)
from actzip.codecs import BitMask
from actzip.codecs.base import Codec, Payload
from actzip.codecs.memory_order import overlaps
from actzip.control.op import UNKNOWN
from actzip.methods.base import STRENGTH, Policy, Role
from actzip.torch_private import StorageWeakRef

_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class Registry:
    """Finds a tensor that is stored already, or stores it; writes down who holds the bytes."""

    def __init__(self, policy: Policy, seed: int, pool: Pool, derives: bool = True):
        self._copies = Copies()
        self.pending = self._copies.made_now
        self._policy = policy
        self._seeds = seeds(seed)
        self._pool = pool
        self._stored: weakref.WeakValueDictionary[Key, Stored] = weakref.WeakValueDictionary()
        self._values: dict[Key, Row] = {}  # whose values they are
        self._bits: dict[Key, Row] = {}  # whose mask it is
        self._left: dict[Key, list[Save]] = {}  # autograd keeps it itself
        self._kept: dict[int, Row] = {}  # the same by storage
        self._raw_slot: Any = None  # the slot that is looked at, and its node
        self._node: Node = None
        self._slots: dict[tuple[int, str], Operand] = {}  # what large constants nodes saved
        self._savers: dict[Key, set[int]] = {}  # the nodes that saved it
        recipes = Recipes()
        # a proxy: payloads must go when the pass is dropped, not when cycles are collected
        self._derive = Derive(recipes, weakref.proxy(self))
        self._recipes = recipes if derives else None
        self._pins: dict[int, StorageWeakRef] = {}
        self._exposed: set[int] = set()  # storages that can be edited without a new version
        self._raw, self._rest = Tally(), Tally()
        self.waiting: Waiting | None = None  #: a ReLU's result
        self.parts = 1  #: in how many parts its backward reads the tensor

    def count(self, want: Wanted, storage: torch.UntypedStorage) -> int:
        """Bytes that saving it keeps alive, in its storage, and no tensor saved before does."""
        self._pin(storage)
        return self._raw.add(want.tensor, want.own, storage.nbytes())

    def copied(self, number: int, node: Node, args: object) -> None:
        """A clone or cast node was made: what it copied may be stored, or its twins."""
        source = self._copies.made(number, node, args)
        if source is not None:
            self._pin(source.untyped_storage())

    def returned(self, out: object) -> None:
        for t in tensors_in(out):
            storage = storage_of(t)
            if storage is not None:
                self._pin(storage)
                self._copies.returned(t)
        self._copies.close()

    def _pin(self, storage: torch.UntypedStorage) -> None:
        """Keep the storage's name from being used again while this pass lasts."""
        name = int(storage._cdata)
        if name not in self._pins:
            self._pins[name] = StorageWeakRef(storage)

    def made(self, number: int, func: Any, args: Any, kwargs: Any, out: Tensor) -> None:
        """A cheap op with one node, of this number, made `out`."""
        if self._recipes is not None and storage_of(out) is not None:
            noise = self._slots.get((number, "other"))
            for t in self._recipes.add(number, out, func, args, kwargs, noise):
                self._pin(t.untyped_storage())

    def close(self) -> None:
        """The pass is over: nothing of its graph is held."""
        self._derive.recipes.clear()
        self._left.clear()
        self._slots.clear()
        self._savers.clear()
        self._raw_slot = self._node = None

    def store(
        self, row: Row, rule: Rule | None, node: Node, want: Wanted, raw: Any
    ) -> Reader | None:
        """Keep it for this row's role; None when autograd keeps the tensor as it is."""
        t = want.tensor
        self._raw_slot, self._node = raw, node
        if self._recipes is not None:
            self._savers.setdefault(want.key, set()).add(int(node._sequence_nr()))
        if self.waiting is not None and self.waiting.key != want.key:
            self.settle()
        self.parts = parts_of(node, row.slot, t, self._policy.slice_bytes)
        if rule is None:
            return self._leave(row, want, f"no rule for {row.node}.{row.slot}: kept exactly")
        if overlaps(want.unit):
            return self._leave(row, want, "elements that share memory cannot be written back")
        if t.dtype is torch.bool:
            return self._value(row, want, BitMask())
        if not t.dtype.is_floating_point:
            if rule.role is Role.INDEX:
                return self._value(row, want, integers(node))
            return self._leave(
                row, want, f"a {t.dtype} tensor outside an index slot stays as it is"
            )
        if t.dtype not in _FLOATS:
            return self._leave(row, want, f"no codec stores {t.dtype}")
        if rule.role is Role.GEOMETRY:
            row.codec = "Shape()"
            return ShapeReader(Stored(self._pool.buffers, Role.GEOMETRY), t)
        if rule.role is Role.MASK:
            return self._mask(row, rule, node, want)
        if rule.role not in (Role.LINEAR, Role.NONLINEAR):
            return self._leave(
                row, want, f"the slot table keeps {rule.role.value} slots as they are"
            )
        return self._noise(row, want) or self._copy(row, want) or self._value(row, want)

    def _leave(self, row: Row, want: Wanted, reason: str) -> Reader | None:
        """Autograd keeps t itself; whoever stored a copy of it can read it there for nothing."""
        t, unit, _, key = want
        row.reason = reason
        first = self._kept.setdefault(key[0], row)
        row.stored_bytes = self._rest.add(t, want.own, t.untyped_storage().nbytes())
        if not row.stored_bytes:
            row.shared_with = first.name
        self._left.setdefault(key, []).append(Save(self._node, self._raw_slot, row))
        stored = self._stored.get(key)
        if stored is not None and not stored.copied:
            stored.replace(Role.EXACT, Kept.of(unit))
            for owner in (self._values.get(key), self._bits.get(key)):
                _hand_over(owner, row)
        return None

    def _value(self, row: Row, want: Wanted, codec: Codec | None = None) -> Reader | None:
        """Find t's values stored, or store them with this codec, or with what the method picks."""
        t, unit, place, key = want
        found = self._find(key, row.role, unit)
        if found is not None:
            row.shared_with = found[1].name
            return Reader(found[0], t, place)
        derived = None if codec else self._derived(row, want, may_store=False)
        if derived is not None:
            return derived
        codec = codec or self._picked(row, key, unit)
        if codec is None:
            derived = self._derived(row, want, may_store=True)
            return derived or self._leave(row, want, self._policy.reason(row.site))
        codec = codec if place else cut(codec, self.parts)  # parts of a view are none of its base
        try:
            payload = codec.encode(unit, seed=next(self._seeds), allocate=self._pool.slabs.allocate)
        except (TypeError, ValueError, RuntimeError) as error:
            return self._leave(row, want, f"{codec!r} could not store it: {error}")
        return Reader(self._put(row, want, payload), t, place)

    def _derived(self, row: Row, want: Wanted, may_store: bool) -> Reader | None:
        """Read it as a function of tensors that are stored exactly."""
        t, unit, place, key = want
        if self._recipes is None:
            return None
        found = self._derive.find(key, unit, row, may_store)
        if found is None:
            return None
        row.derived_from = ", ".join(found.sites)
        row.recipe, row.stored_bytes = found.recipe.name, row.stored_bytes + found.nbytes
        stored = self._stored.get(key)
        if stored is None:
            stored = self._add(key, self._new(Role.EXACT, found))
        else:
            _hand_over(self._values.get(key), row)
            _hand_over(self._bits.get(key), row)
            stored.replace(Role.EXACT, found)
            self.waiting = None
        stored.site = row.name
        self._values[key] = row
        return Reader(stored, t, place)

    def _encode(self, t: Tensor, codec: Codec) -> Payload:
        payload = codec.encode(t, seed=next(self._seeds), allocate=self._pool.slabs.allocate)
        return send(payload) if self._policy.swap else payload

    def _picked(self, row: Row, key: Key, unit: Tensor) -> Codec | None:
        stored = self._stored.get(key)
        node = node_of(unit)
        maker = UNKNOWN if node is None else op(type(node).__name__)
        row.site = row.site.made(maker, stored is not None and stored.relu)
        return self._policy.codec(row.site, unit)

    def _put(self, row: Row, want: Wanted, payload: Payload) -> Stored:
        """Keep this payload for the tensor, and what its other readers need beside it."""
        key, payload = want.key, send(payload) if self._policy.swap else payload
        stored = self._stored.get(key)
        if stored is None:
            stored = self._add(key, self._new(row.role, payload))
        else:
            _hand_over(self._values.get(key), row)
            bits = stored.bits
            if stored.relu and payload.codec.keeps_mask:  # the mask is in the code: zero means off
                bits = None
                _hand_over(self._bits.get(key), row)
            elif stored.relu and not beside(bits, payload):  # it was, but this code cannot tell
                bits = self._bits_of(self._bits[key], want.unit, self.parts)
            stored.replace(row.role, payload, bits=bits)
            self.waiting = None
        stored.site = row.name
        self._values[key] = row
        row.codec, row.stored_bytes = repr(payload.codec), payload.nbytes
        row.precision = payload.codec.precision()
        return stored

    def _bits_of(self, row: Row, source: Tensor, parts: int) -> Payload:
        bits = cut(BitMask(), parts).encode(source, allocate=self._pool.slabs.allocate)
        row.codec, row.stored_bytes, row.shared_with = repr(bits.codec), bits.nbytes, ""
        return send(bits) if self._policy.swap else bits

    def settle(self) -> None:
        """Nobody stored the values of the ReLU's result that waits: its bits are all it needs."""
        waiting, self.waiting = self.waiting, None
        due = None if waiting is None else waiting.due
        if waiting is not None and due is not None:
            bits = self._bits_of(waiting.row, due, waiting.parts)
            waiting.stored.replace(Role.MASK, None, bits=bits)

    def expose(self, t: Tensor) -> None:
        """Somebody got hold of t's memory in a way that leaves no version: `.data`, numpy."""
        storage = storage_of(t)
        if storage is not None:
            self._pin(storage)
            self._exposed.add(int(storage._cdata))

    def _find(self, key: Key, role: Role, now: Tensor | None) -> tuple[Stored, Row] | None:
        """The stored tensor of this key if it is good enough for the role, and who holds it.

        `now` is the tensor as it is at this moment, if it is still there.
        """
        stored = self._stored.get(key)
        if key in self._left:
            save = self._left[key][0]
            unit = save.tensor
            if stored is None and unit is not None:
                unit = unit_of(unit)[0]
                stored = self._add(key, self._new(Role.EXACT, Kept(unit.detach(), key[1])))
            return None if stored is None else (stored, save.row)
        if stored is None or stored.value is None or STRENGTH[stored.role] < STRENGTH[role]:
            return None
        if not self._is_same(key, now, stored):
            del self._stored[key]  # its readers keep it; for this state of the memory there is none
            return None
        return stored, self._values[key]

    def _is_same(self, key: Key, now: Tensor | None, stored: Stored) -> bool:
        """False when the memory was edited without a trace since it was stored: that may be if it
        was seen to be exposed, or is a constant from outside, such as an array's."""
        if now is None:
            return key[0] not in self._exposed
        is_open = key[0] in self._exposed or (now.device.type == "cpu" and node_of(now) is None)
        return not is_open or stored.holds(now)

    def _mask(self, row: Row, rule: Rule, node: Node, want: Wanted) -> Reader | None:
        t = want.tensor
        mask = None if rule.mask is None else agreeing(node, row.slot, rule.mask, t)
        if mask is None and rule.mask is not None:
            return self._leave(row, want, unknown_convention(row.node, t.dtype))
        if mask is None or (mask.fits is not None and not mask.fits(node, t)):
            return self._leave(row, want, "one bit per element is not enough for these values")
        key = want.own
        levels = mask.levels(node, t)
        found = self._find(key, Role.EXACT, t)
        if found is not None:
            row.shared_with = found[1].name
            return Reader(found[0], t, None)  # the values themselves, not what their code calls on
        if mask is RELU and key not in self._stored:
            stored = self._add(key, self._new(Role.MASK, Kept.of(t), relu=True))
            self._bits[key] = row
            self.waiting = Waiting(row, key, stored, self.parts)
        else:
            bits = self._bits_of(row, t if mask is RELU else mask.test(node, t), self.parts)
            stored = self._new(Role.MASK, None, bits)
            if key not in self._stored:
                self._add(key, stored)
                self._bits[key] = row
        return MaskReader(stored, t, levels)

    def _noise(self, row: Row, want: Wanted) -> Reader | None:
        """Dropout's factor, 0 or one scale, is a mask in a float's clothes."""
        t, unit, place, key = want
        if t.requires_grad or node_of(t) is not None:
            return None
        scale = noise(t)
        if scale is None:
            return None
        found = self._find(key, Role.EXACT, unit)
        if found is not None:
            row.shared_with = found[1].name
            return Reader(found[0], t, place)
        try:
            payload = BitMask(on=scale).encode(unit, allocate=self._pool.slabs.allocate)
        except ValueError:  # a third value further on: no noise after all
            return None
        stored = self._put(row, want, payload)
        stored.role = Role.EXACT
        if self._recipes is not None and place is None:
            self._slots[int(self._node._sequence_nr()), row.slot] = Operand.of(unit)
        return Reader(stored, t, place)

    def _copy(self, row: Row, want: Wanted) -> Reader | None:
        """A cast or reordered copy of a stored tensor, or a second copy of one kind."""
        t, unit, place, _ = want
        inner = self._copies.inner(unit)
        origin = inner or self._copies.outer(unit)
        if origin is None:
            return None
        # a tensor that autograd keeps by itself may be edited before the copy is read, and the copy
        # would not be: only what is stored serves
        ours = origin.key not in self._left
        found = self._find(origin.key, row.role, origin.unit()) if ours else None
        if found is not None and origin.gives(unit):
            row.shared_with = found[1].name
            found[0].copied = True
            return CopyReader(found[0], origin.place, unit, t, place)
        twin = self._copies.first(origin, unit) if inner else None
        other = None if twin is None else twin.unit()
        found = None if twin is None else self._find(twin.key, row.role, other)
        if found is None:
            return None
        if other is not None and not torch.equal(other, unit):
            return None
        row.shared_with = found[1].name
        return Reader(found[0], t, place)

    def _new(
        self,
        role: Role,
        value: Payload | Source | None,
        bits: Payload | None = None,
        relu: bool = False,
    ) -> Stored:
        stored = Stored(self._pool.buffers, role, value, bits, relu)
        self._pool.live.add(stored)
        return stored

    def _add(self, key: Key, stored: Stored) -> Stored:
        self._stored[key] = stored
        return stored


def _hand_over(owner: Row | None, holder: Row) -> None:
    """The bytes counted at `owner` are gone; it reads what `holder` holds."""
    if owner is not None and owner is not holder:
        owner.stored_bytes, owner.codec, owner.shared_with = 0, "", holder.name
