"""Finds what a saved tensor can be made again from, so that it need not be stored."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from actzip.autograd.identity import Key, storage_of, unit_of
from actzip.autograd.ledger import Row
from actzip.autograd.recipes import Derivation, Operand, Part, Recipes
from actzip.autograd.stored import Kept, Reader, Stored
from actzip.codecs import Keep
from actzip.codecs.base import Payload
from actzip.methods.base import Role

DEPTH = 6  #: results of results of … that one tensor is made again through
SHARE = 8  #: small operands are copied for results at least so many times their size


class Save:
    """A slot that autograd keeps itself, and could be served instead."""

    def __init__(self, node: Any, raw: Any, row: Row):
        self.node = node  # a slot's handle does not keep its node alive
        self.raw = raw
        self.row = row

    @property
    def tensor(self) -> Tensor | None:
        """What autograd would hand to backward; None when it is not ours to change."""
        if self.raw.unpack_hook is not None:
            return None
        t = self.raw.data
        return t if isinstance(t, Tensor) and storage_of(t) is not None else None


class Derive:
    """The recipes of one pass, with what of their operands is stored or could be."""

    def __init__(self, recipes: Recipes, registry: Any):
        self.recipes = recipes
        self._registry = registry  # the Registry that has this

    def find(self, key: Key, t: Tensor, row: Row, may_store: bool) -> Derivation | None:
        """A way to make t again, bit for bit; operands that autograd keeps are then stored.

        may_store  store an operand that nobody has, if it is half t's size or less (a cast's)
        """
        if self.recipes.of(key) is None:
            return None
        limit = t.numel() * t.element_size()
        search = _Search(self.recipes, self._registry, limit, may_store)
        found = search.derivation(key, 0)
        if found is None or not found.gives(t):
            return None
        search.settle(row)
        return found


class _Search:
    """One tensor's: what would have to be stored is stored when all is known to fit."""

    def __init__(self, recipes: Recipes, registry: Any, nbytes: int, may_store: bool):
        self._recipes = recipes
        self._at = registry
        self._nbytes = nbytes  # of the tensor
        self._copied = nbytes // SHARE  # bytes of small operands that may still be copied
        self._room = nbytes // 2 if may_store else 0  # bytes of operands that may still be stored
        self._taken: dict[Key, tuple[Stored, Tensor]] = {}  # left to autograd until now
        self._added: dict[Key, tuple[Stored, Tensor]] = {}  # that nobody had

    def derivation(self, key: Key, depth: int) -> Derivation | None:
        recipe = self._recipes.of(key)
        if recipe is None or depth == DEPTH:
            return None
        found: dict[Operand, Part | Tensor] = {}
        for operand in recipe.operands:
            part: Part | Tensor | None = self._small(operand)
            part = self._part(operand, recipe.number, depth) if part is None else part
            if part is None:
                return None
            found[operand] = part
        return Derivation(recipe, found) if found else None

    def _small(self, operand: Operand) -> Tensor | None:
        t = operand.now() if operand.small is not None else None
        if t is None or operand.nbytes > self._copied:
            return None
        self._copied -= operand.nbytes
        return t.clone()

    def _part(self, operand: Operand, number: int, depth: int) -> Part | None:
        """An operand of the op with this node."""
        key, now = operand.key, operand.now()
        stored = self._at._stored.get(key)
        # a larger one must be there until then anyway, because the op itself saved it
        if operand.nbytes > self._nbytes and number not in self._at._savers.get(key, ()):
            stored = None
        elif key in self._at._left:
            stored = self._take(key)
        elif stored is not None:
            same = _is_exact(stored) and self._at._is_same(key, now, stored)
            stored = stored if same else None
        if stored is None:
            stored = self._inner(key, depth, room=0) or self._add(operand)
        if stored is None and self._room:
            stored = self._inner(key, depth, room=self._room)
        return None if stored is None else Part(stored, operand.place)

    def _inner(self, key: Key, depth: int, room: int) -> Stored | None:
        """An operand that is a result itself, made again with at most `room` bytes more."""
        before = self._room, self._copied, dict(self._taken), dict(self._added)
        self._room, unused = room, self._room - room
        found = self.derivation(key, depth + 1)
        if found is None:
            self._room, self._copied, self._taken, self._added = before
            return None
        self._room += unused
        stored: Stored = self._at._new(Role.EXACT, found)
        return stored

    def _add(self, operand: Operand) -> Stored | None:
        """An operand that nobody has."""
        key, now = operand.key, operand.now()
        if key in self._added:
            return self._added[key][0]
        if now is None or operand.nbytes > self._room:
            return None
        self._room -= operand.nbytes
        stored: Stored = self._at._new(Role.EXACT, Kept.of(now))
        self._added[key] = stored, now
        return stored

    def _take(self, key: Key) -> Stored | None:
        """A tensor that autograd keeps: it can be ours, if every slot that has it lets it go."""
        if key in self._taken:
            return self._taken[key][0]
        saves = self._at._left[key]
        others = any(k[0] == key[0] and k != key for k in self._at._left)
        tensors = [save.tensor for save in saves]
        if others or not tensors or tensors[0] is None or any(t is None for t in tensors):
            return None
        if any(t._version != key[1] for t in tensors if t is not None):
            return None
        unit = unit_of(tensors[0])[0]
        stored: Stored = self._at._stored.get(key) or self._at._new(Role.EXACT, Kept.of(unit))
        self._taken[key] = stored, unit
        return stored

    def settle(self, row: Row) -> None:
        """All fits: store what is to be stored, and give autograd our readers for it."""
        for key, (stored, unit) in self._taken.items():
            payload = self._at._encode(unit, Keep())
            stored.replace(Role.EXACT, payload)
            saves = self._at._left.pop(key)
            self._at._stored[key], self._at._values[key] = stored, saves[0].row
            stored.site = saves[0].row.name
            for save in saves:
                _serve(save, stored)
                _account(save.row, payload, saves[0].row)
        for key, (stored, now) in self._added.items():
            payload = self._at._encode(now, Keep())
            stored.replace(Role.EXACT, payload)
            self._at._stored[key], self._at._values[key] = stored, row
            stored.site = row.name
            row.codec, row.stored_bytes = repr(payload.codec), row.stored_bytes + payload.nbytes


def _is_exact(stored: Stored) -> bool:
    """Whether its values are there, as they were, whatever happens to the tensor."""
    value = stored.value
    if isinstance(value, Payload):
        return value.codec.exact or stored.role is Role.EXACT
    return isinstance(value, Derivation)


def _serve(save: Save, stored: Stored) -> None:
    t = save.tensor
    assert t is not None, "asked for when it was taken"
    with torch.no_grad():
        reader = Reader(stored, t, unit_of(t)[1])
    save.raw.register_hooks(lambda _: reader, unpack)


def _account(row: Row, payload: Payload, holder: Row) -> None:
    row.reason = ""
    if row is holder:
        row.codec, row.stored_bytes, row.shared_with = repr(payload.codec), payload.nbytes, ""
    else:
        row.codec, row.stored_bytes, row.shared_with = "", 0, holder.name


def unpack(reader: Reader) -> Tensor:
    """A saved slot's hook."""
    return reader.unpack()
