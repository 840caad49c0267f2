"""What becomes of a saved tensor: the one place where that is decided, with the reason."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from actzip.autograd.calls import Calls
from actzip.autograd.copies import Copies
from actzip.autograd.decision import Decision, Fate, Saved, left
from actzip.autograd.derive import Derive
from actzip.autograd.derive_lossy import DeriveLossy
from actzip.autograd.identity import node_of
from actzip.autograd.ledger import Row
from actzip.autograd.recipe import WHOLE, Bits, Copy, Recipe, Shape, View, view_at
from actzip.autograd.short_values import SHORT, comes_back, is_short
from actzip.autograd.sliced_tensor import cut
from actzip.autograd.slots import TRAITS, Node, Slot
from actzip.autograd.slots.conventions import agreeing, unknown_convention
from actzip.autograd.slots.masks import RELU
from actzip.autograd.slots.windows import integers
from actzip.autograd.stored import Stored
from actzip.autograd.tensor_store import TensorStore
from actzip.autograd.transforms import INSIDE
from actzip.codecs import BitMask, unsettled
from actzip.codecs.base import Codec
from actzip.codecs.memory_order import overlaps
from actzip.control.op import UNKNOWN
from actzip.methods.base import Policy, Role
from actzip.torch_private import is_functorch_wrapped

_AS_THEY_ARE = {role: f"the slot table keeps {role.value} slots as they are" for role in Role}
_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class Decide:
    """Asks the slot table, what is stored already, what can be made again, and the method."""

    def __init__(
        self,
        policy: Policy,
        store: TensorStore,
        copies: Copies,
        calls: Calls | None,
    ):
        self._policy = policy
        self._store = store
        self._copies = copies
        self._derive: Derive | DeriveLossy | None = None
        if calls is not None:
            lossy = calls.lossy
            self._derive = DeriveLossy(calls, store, copies) if lossy else Derive(calls, store)

    def __call__(self, saved: Saved) -> Decision:
        t, rule = saved.want.tensor, saved.rule
        if rule is None:
            return left(f"no rule for {saved.row.node}.{saved.row.slot}: kept exactly")
        unit = saved.want.unit
        if not unit.numel():  # methods measure what they code
            return left("an empty tensor takes no memory")
        if not unit.is_contiguous() and overlaps(unit):
            return left("elements that share memory cannot be written back")
        if t.dtype is torch.bool:
            return self._value(saved, BitMask())
        if not t.dtype.is_floating_point:
            if rule.role is Role.INDEX:
                return self._value(saved, integers(saved.node))
            return left(f"a {t.dtype} tensor outside an index slot stays as it is")
        if t.dtype not in _FLOATS:
            return left(f"no codec stores {t.dtype}")
        role = rule.role
        if role is Role.GEOMETRY:
            return Decision(Fate.SHAPE, recipe=Shape())
        if role is Role.MASK:
            return self._mask(saved)
        if role is not Role.LINEAR and role is not Role.NONLINEAR:
            return Decision(Fate.LEFT, _AS_THEY_ARE[role])
        found = None
        if saved.maker is None or saved.want.place is not None:
            found = self._noise(saved)
        if found is None and self._copies.some:
            found = self._copy(saved)
        return found or self._value(saved)

    def _mask(self, saved: Saved) -> Decision:
        node, row, t, rule = saved.node, saved.row, saved.want.tensor, saved.rule
        mask = None if rule is None or rule.mask is None else rule.mask
        agreed = None if mask is None else agreeing(node, row.slot, mask, t)
        if mask is not None and agreed is None:
            return left(unknown_convention(row.node, t.dtype))
        if agreed is None or (agreed.fits is not None and not agreed.fits(node, t)):
            return left("one bit per element is not enough for these values")
        recipe = Bits(agreed.levels(node, t))
        found = self._store.find(saved.want.own, Role.EXACT, t)
        if found is not None:  # the values themselves, not what their code calls on
            return _shared(found, WHOLE)
        if agreed is RELU and self._store.get(saved.want.own) is None:
            return self._rectified(saved, recipe) or Decision(Fate.DEFERRED, recipe=recipe)
        bits = self._store.pack(t if agreed is RELU else agreed.test(node, t), saved.parts)
        return Decision(Fate.BITS, recipe=recipe, payload=bits)

    def _rectified(self, saved: Saved, recipe: Recipe) -> Decision | None:
        """A ReLU's result, mask and all, from the code of a BatchNorm's input."""
        if not isinstance(self._derive, DeriveLossy):
            return None
        found = self._derive.rectified(saved)
        if isinstance(found, str):
            self._policy.rectifies(found)
            return None
        if found is None:
            return None
        return Decision(Fate.DERIVED, recipe=recipe, derivation=found[0], role=found[1])

    def _noise(self, saved: Saved) -> Decision | None:
        """Dropout's factor, 0 or one scale, is a mask in a float's clothes."""
        t, unit, place, key = saved.want
        if t.requires_grad or node_of(t) is not None:
            return None
        scale = self._store.scales.of(saved.row.name, t)
        if scale is None:
            return None
        found = self._store.find(key, Role.EXACT, unit)
        if found is not None:
            return _shared(found, view_at(place))
        try:
            payload = self._store.encode(unit, BitMask(on=scale), seed=0)
        except ValueError:  # a third value further on: no noise after all
            return None
        return Decision(Fate.STORED, recipe=view_at(place), payload=payload, role=Role.EXACT)

    def _copy(self, saved: Saved) -> Decision | None:
        """A cast or reordered copy of a stored tensor, or a second copy of one kind."""
        (_, unit, place, key), role = saved.want, saved.row.role
        inner = self._copies.inner(unit)
        origin = inner or self._copies.outer(key)
        if origin is None:
            return None
        # a tensor that autograd keeps by itself may be edited before the copy is read, and the copy
        # would not be: only what is stored serves
        ours = origin.key not in self._store.left
        found = self._store.find(origin.key, role, origin.unit()) if ours else None
        # values are compared where that is free; elsewhere it is enough that nobody could edit it
        free = unsettled.reading_is_free(unit.device)
        is_closed = not self._store.is_exposed(origin.key)
        if found is not None and (origin.gives(unit) if free else is_closed):
            return _shared(found, Copy.of(unit, origin.place, place))
        twin = self._copies.first(origin, unit) if inner else None
        other = None if twin is None else twin.unit()
        found = None if twin is None else self._store.find(twin.key, role, other)
        if found is None or (free and other is not None and not torch.equal(other, unit)):
            return None
        return _shared(found, view_at(place))

    def _value(self, saved: Saved, codec: Codec | None = None) -> Decision:
        """Its values: stored already, made again, or in this code, or in the method's."""
        row, (_, unit, place, key) = saved.row, saved.want
        found = self._store.find(key, row.site.role, unit)
        if found is not None:
            return _shared(found, view_at(place))
        if codec is None:
            derived = self._derived(saved, may_store=False) if self._derive else None
            if derived is not None:
                return derived
            codec = self._picked(saved)
        if codec is None:
            made = self._derived(saved, may_store=True) or self._short(saved)
            return made or left(self._policy.reason(row.site))
        if saved.parts > 1 and not place:  # parts of a view are none of its base
            codec = cut(codec, saved.parts)
        try:
            payload = self._store.encode(unit, codec)
        except (TypeError, ValueError, RuntimeError) as error:
            return left(f"{codec!r} could not store it: {error}")
        return Decision(Fate.STORED, "", WHOLE if place is None else View(place), payload)

    def _derived(self, saved: Saved, may_store: bool) -> Decision | None:
        """A function of tensors that are stored."""
        found = None if self._derive is None else self._derive.find(saved, may_store)
        if found is None:
            return None
        derivation, role = found
        recipe = view_at(saved.want.place)
        return Decision(Fate.DERIVED, recipe=recipe, derivation=derivation, role=role)

    def _short(self, saved: Saved) -> Decision | None:
        """Every bit of it in 16 for each element, if it holds nothing but bfloat16 numbers."""
        unit = saved.want.unit.detach()
        if not isinstance(self._derive, Derive) or not is_short(unit):
            return None
        payload = self._store.encode(unit, SHORT, seed=0)
        if not comes_back(unit, payload):
            return None
        recipe = view_at(saved.want.place)
        return Decision(Fate.STORED, recipe=recipe, payload=payload, role=Role.EXACT)

    def _picked(self, saved: Saved) -> Codec | None:
        """What the method says, now that the tensor's maker is known."""
        row, (_, unit, _, key) = saved.row, saved.want
        stored, node = self._store.get(key), saved.maker
        maker = UNKNOWN if node is None else TRAITS.get(type(node).__name__, UNKNOWN)
        site = row.site = row.site.made(maker, stored is not None and stored.relu)
        rectified = self._policy.rectified
        if rectified and site.name in rectified and isinstance(self._derive, DeriveLossy):
            origins = self._derive.origins(saved)
            if origins is not None:
                return self._policy.sign_exact(site, unit, origins)
        return self._policy.codec(site, unit)


def _shared(found: tuple[Stored, Row], recipe: Recipe) -> Decision:
    return Decision(Fate.SHARED, recipe=recipe, source=found[0], holder=found[1])


def is_ours(node: Node, slot: Slot, raw: Any, t: Tensor) -> bool:
    """Whether its memory holds its values, nobody else has the slot, and it was not edited."""
    if t.is_neg() or t.is_conj() or t.is_meta or t._is_zerotensor() or raw.unpack_hook is not None:
        return False
    try:
        getattr(node, slot.saved)
    except RuntimeError:  # edited since it was saved: autograd itself will refuse it
        return False
    return True


def unseen(raw: Any, t: Any) -> str:
    """Why a saved tensor that has no ordinary memory, or is in other hands, is not looked at."""
    if raw.unpack_hook is not None:
        return "hooks of checkpoint or of another session were there first"
    if isinstance(t, Tensor) and (t.is_neg() or t.is_conj()):
        return "views with a conj or neg bit are left alone"
    if isinstance(t, Tensor) and t._is_zerotensor():
        return "zeros without memory, as torch.func makes them, are left alone"
    if isinstance(t, Tensor) and t.device.type == "meta":
        return "meta tensors are left alone"
    if is_functorch_wrapped(t):
        return INSIDE
    return f"{type(t).__name__} of layout {t.layout} is left alone"
