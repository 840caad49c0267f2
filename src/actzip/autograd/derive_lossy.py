"""Finds what a saved tensor is a function of, where that need not come back bit for bit.

For methods whose codes have errors anyway: a cheap function of a tensor that is stored for itself
is made again from the decoded tensor. Masks are never made from values with an error: a ReLU's
result is what came in where its own bits say that it was positive, or where a code that tells the
sides of a BatchNorm's input does (sign_exact.py).
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from actzip.autograd.calls import Call, Calls, Operand, peak, relu
from actzip.autograd.copies import Copies
from actzip.autograd.decision import Saved
from actzip.autograd.derivation import Derivation, Part
from actzip.autograd.derive import DEPTH, SHARE
from actzip.autograd.identity import Key, Layout
from actzip.autograd.norm_calls import MOMENTS, is_steep
from actzip.autograd.recipe import remake
from actzip.autograd.sign_exact import derivation, is_batch_norm, origins
from actzip.autograd.slots.derivations import adds
from actzip.autograd.stored import Stored
from actzip.autograd.tensor_store import TensorStore
from actzip.codecs import Dithered, unsettled
from actzip.codecs.base import Payload
from actzip.methods.base import STRENGTH, Role
from actzip.planning import is_fake

_FAR = 4.0  #: times the error of a code of the result itself, from where on that is stored instead
_CLOSE = 0.02  #: an error in parts of the result that is small whatever the code
SOURCES = 2  #: stored tensors that one is made again from, a gate and what it gates; a sum has one


class DeriveLossy:
    """The cheap calls of one pass, and which of their operands are stored."""

    def __init__(self, calls: Calls, store: TensorStore, copies: Copies):
        self._calls = calls
        self._store = store
        self._copies = copies

    def find(self, saved: Saved, may_store: bool) -> tuple[Derivation, Role] | None:
        """A way to make it again, and what that is good for: at least the slot's role.

        may_store  asked when nothing else is left: it was tried before
        """
        key, unit = saved.want.key, saved.want.unit
        call = None if may_store else self._calls.of(key) or self._copy(key, unit)
        if call is None:
            return None
        search = _Search(self._calls, self._store, unit, saved.row.role)
        found = search.derivation(call, key, 0)
        if found is None or (search.is_doubtful(unit) and not _is_close(found, call, unit)):
            return None
        for source in found.sources:
            source.copied = True  # autograd's own tensor must not take its place: edits reach that
        return found, search.role

    def origins(self, saved: Saved) -> tuple[float, ...] | None:
        """Of the input of a BatchNorm: where its result crosses zero, channel by channel."""
        call = self._calls.of_node(saved.number)
        if call is None or not is_batch_norm(call) or saved.want.place is not None:
            return None
        return origins(call, saved.want.unit)

    def rectified(self, saved: Saved) -> tuple[Derivation, Role] | str | None:
        """A ReLU's result, mask and all, from the input of a BatchNorm before it; or the site of
        that input, if its code does not tell the sides."""
        key, unit = saved.want.key, saved.want.unit
        call = self._calls.of(key)
        if call is None or call.function is not relu or saved.want.place is not None:
            return None
        (before,) = call.operands
        norm = self._calls.of(before.key)
        if norm is None or not is_batch_norm(norm) or before.place is not None:
            return None
        stored = self._store.get(norm.operands[0].key)
        if stored is None or not isinstance(stored.value, Payload) or not stored.site:
            return None
        codec = stored.value.codec
        if not isinstance(codec, Dithered) or codec.origin is None:
            return stored.site
        search = _Search(self._calls, self._store, unit, Role.LINEAR)
        made = search.derivation(norm, before.key, 1)
        if made is None or self._store.is_exposed(key):
            return None
        made = derivation(made, codec, call)
        if search.is_doubtful(unit) and not _is_close(made, call, unit):
            return None
        stored.copied = True  # as in `find`
        return made, search.role

    def _copy(self, key: Key, unit: Tensor) -> Call | None:
        """The call that a copy is of which only the running call knows: autocast makes such."""
        origin = self._copies.inner(unit) or self._copies.outer(key)
        if origin is None:
            return None
        like, nbytes = Layout.of(unit), origin.numel * unit.element_size()
        copy = functools.partial(remake, source=None, copy=like.place, dtype=like.dtype)
        copy.__name__ = "copy"  # type: ignore[attr-defined]
        operand = Operand(origin.key, origin.place, nbytes, origin.unit, None)
        return Call(copy, (operand,), {}, like, "", 0)


class _Search:
    """One tensor's."""

    def __init__(self, calls: Calls, store: TensorStore, t: Tensor, role: Role):
        self._calls = calls
        self._store = store
        self._wanted = role
        self._numel = t.numel()
        self._copied = t.numel() * t.element_size() // SHARE  # bytes that may still be copied
        self.role = Role.NONLINEAR  #: the weakest of what it is made from
        self._steep = False  # an op on the way may magnify errors
        self._norms = False  # one on the way is a norm

    def derivation(self, call: Call, key: Key, depth: int) -> Derivation | None:
        """How to make the result of this call, which has this key."""
        if depth == DEPTH or self._store.is_exposed(key):
            return None
        found: dict[Operand, Part | Tensor] = {}
        for operand in call.operands:
            part: Part | Tensor | None = self._small(operand)
            part = self._part(operand, call.number, depth) if part is None else part
            if part is None:
                return None
            found[operand] = part
        self._note(call)
        made = Derivation.of(call, found)
        most = 1 if adds(call.node) else SOURCES
        if not made.sources or len(_lossy(made)) > most:
            return None
        return made if call.function is not relu or self._has_bits(key) else None

    def _note(self, call: Call) -> None:
        """Whether it may magnify errors beside its result; where to read that is free."""
        self._steep = self._steep or call.narrow
        moments = call.args[1 : 1 + MOMENTS.get(call.function, 0)]
        if not moments or self._steep or is_fake(moments[0]):
            return
        if unsettled.reading_is_free(moments[0].device):
            self._norms, self._steep = True, is_steep(*moments)

    def is_doubtful(self, t: Tensor) -> bool:
        """Whether the tensor may be small beside the errors of what is made from codes: of a norm's
        rows that are not flat the peak is at least 1."""
        return self._steep or (self._norms and peak(t) < 1)

    def _has_bits(self, key: Key) -> bool:
        """Whether the mask of the ReLU with this result is there; it is written if it waits."""
        self._store.settle()
        stored = self._store.get(key)
        return stored is not None and stored.relu and stored.bits is not None

    def _small(self, operand: Operand) -> Tensor | None:
        t = operand.now() if operand.small is not None else None
        if t is None or operand.nbytes > self._copied or self._store.get(operand.key) is not None:
            return None
        self._copied -= operand.nbytes
        return t.clone()

    def _part(self, operand: Operand, number: int, depth: int) -> Part | None:
        """An operand of the op with this node."""
        key, stored = operand.key, self._store.get(operand.key)
        # a larger one must be there until then anyway, because the op itself saved it
        if operand.numel > self._numel and number not in self._store.savers.get(key, ()):
            return None
        if stored is not None and self._serves(operand, stored):
            if STRENGTH[stored.role] < STRENGTH[self.role]:
                self.role = stored.role
            return Part(stored, operand.place)
        call = self._calls.of(key)
        made = None if call is None else self.derivation(call, key, depth + 1)
        if call is None or made is None:
            return None
        if call.function is relu:
            return Part(self._store.fill(key, self.role, made), operand.place)
        return Part(self._store.new(self.role, made), operand.place)

    def _serves(self, operand: Operand, stored: Stored) -> bool:
        """Whether its values are there, good enough, whatever happens to the tensor."""
        key = operand.key
        ours = isinstance(stored.value, (Payload, Derivation)) and key not in self._store.left
        if not ours or STRENGTH[stored.role] < STRENGTH[self._wanted]:
            return False
        return self._store.is_same(key, operand.now(), stored, operand.constant)


def _is_close(made: Derivation, call: Call, t: Tensor) -> bool:
    """Whether what is made again is about as close to the tensor as a code of it would be."""
    again = made.get({source: source.tensor() for source in made.sources})
    if call.function is relu:
        again = torch.where(t > 0, again, again.new_zeros(()))
    size, error = _norm(t), _norm(again.double() - t.double())
    if error <= _CLOSE * size:
        return True
    coded = [
        s.value for s in made.sources if isinstance(s.value, Payload) and not s.value.codec.exact
    ]
    return error <= _FAR * max((_error(payload, t) for payload in coded), default=0.0)


def _norm(t: Tensor) -> float:
    return float(t.detach().double().norm())


def _error(payload: Payload, t: Tensor) -> float:
    """Of a code of t like this one."""
    try:
        direct = payload.codec.decode(payload.codec.encode(t.detach(), seed=payload.seed))
    except ValueError:  # made for another shape: a step for each channel
        return 0.0
    return _norm(direct.double() - t.double())


def _lossy(made: Derivation) -> list[Stored]:
    """Its sources but for masks and the like, which come back as they were."""
    return [source for source in made.sources if source.role is not Role.EXACT]
