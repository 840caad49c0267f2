"""Finds what a saved tensor can be made again from, so that it need not be stored."""

from __future__ import annotations

from torch import Tensor

from actzip.autograd.calls import Calls, Operand
from actzip.autograd.decision import Saved
from actzip.autograd.derivation import Derivation, Part
from actzip.autograd.identity import Key, unit_of
from actzip.autograd.ledger import Row
from actzip.autograd.stored import Kept, Stored
from actzip.autograd.tensor_store import TensorStore
from actzip.codecs.base import Payload
from actzip.methods.base import Role

DEPTH = 6  #: results of results of … that one tensor is made again through
SHARE = 8  #: small operands are copied for results at least so many times their size


class Derive:
    """The cheap calls of one pass, and which of their operands are stored or could be."""

    def __init__(self, calls: Calls, store: TensorStore):
        self._calls = calls
        self._store = store

    def find(self, saved: Saved, may_store: bool) -> tuple[Derivation, Role] | None:
        """A way to make it again, bit for bit; operands that autograd keeps are then stored.

        may_store  store an operand that nobody has, if it is half its size or less (a cast's)
        """
        key, t = saved.want.key, saved.want.unit
        if self._calls.of(key) is None:
            return None
        limit = t.numel() * t.element_size()
        search = _Search(self._calls, self._store, limit, may_store)
        found = search.derivation(key, 0)
        if found is None or not found.gives(t):
            return None
        search.settle(saved.row)
        return found, Role.EXACT


class _Search:
    """One tensor's: what would have to be stored is stored when all is known to fit."""

    def __init__(self, calls: Calls, store: TensorStore, nbytes: int, may_store: bool):
        self._calls = calls
        self._store = store
        self._nbytes = nbytes  # of the tensor
        self._copied = nbytes // SHARE  # bytes of small operands that may still be copied
        self._room = nbytes // 2 if may_store else 0  # bytes of operands that may still be stored
        self._taken: dict[Key, tuple[Stored, Tensor]] = {}  # left to autograd until now
        self._added: dict[Key, tuple[Stored, Tensor]] = {}  # that nobody had

    def derivation(self, key: Key, depth: int) -> Derivation | None:
        call = self._calls.of(key)
        if call is None or depth == DEPTH:
            return None
        found: dict[Operand, Part | Tensor] = {}
        for operand in call.operands:
            part: Part | Tensor | None = self._small(operand)
            part = self._part(operand, call.number, depth) if part is None else part
            if part is None:
                return None
            found[operand] = part
        return Derivation.of(call, found) if found else None

    def _small(self, operand: Operand) -> Tensor | None:
        t = operand.now() if operand.small is not None else None
        if t is None or operand.nbytes > self._copied:
            return None
        self._copied -= operand.nbytes
        return t.clone()

    def _part(self, operand: Operand, number: int, depth: int) -> Part | None:
        """An operand of the op with this node."""
        key, now = operand.key, operand.now()
        stored = self._store.get(key)
        # a larger one must be there until then anyway, because the op itself saved it
        if operand.nbytes > self._nbytes and number not in self._store.savers.get(key, ()):
            stored = None
        elif key in self._store.left:
            stored = self._take(key)
        elif stored is not None:
            same = _is_exact(stored) and self._store.is_same(key, now, stored, operand.constant)
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
        return self._store.new(Role.EXACT, found)

    def _add(self, operand: Operand) -> Stored | None:
        """An operand that nobody has."""
        key, now = operand.key, operand.now()
        if key in self._added:
            return self._added[key][0]
        if now is None or operand.nbytes > self._room:
            return None
        self._room -= operand.nbytes
        stored = self._store.new(Role.EXACT, Kept.of(now))
        self._added[key] = stored, now
        return stored

    def _take(self, key: Key) -> Stored | None:
        """A tensor that autograd keeps: it can be ours, if every slot that has it lets it go."""
        if key in self._taken:
            return self._taken[key][0]
        saves = self._store.left[key]
        others = self._store.left_in[key[0]] > 1
        tensors = [saved.current for saved in saves]
        if others or not tensors or tensors[0] is None:
            return None
        for t in tensors:
            if t is None or t._version != key[1]:
                return None
        unit = unit_of(tensors[0])[0]
        stored = self._store.get(key) or self._store.new(Role.EXACT, Kept.of(unit))
        self._taken[key] = stored, unit
        return stored

    def settle(self, row: Row) -> None:
        """All fits: store what is to be stored, and give autograd our readers for it."""
        for key, (stored, unit) in self._taken.items():
            self._store.take(key, stored, unit)
        for key, (stored, now) in self._added.items():
            self._store.add(key, stored, now, row)


def _is_exact(stored: Stored) -> bool:
    """Whether its values are there, as they were, whatever happens to the tensor."""
    value = stored.value
    if isinstance(value, Payload):
        return value.codec.exact or stored.role is Role.EXACT
    return type(value) is Derivation
