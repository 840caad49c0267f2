"""One forward pass: looks at each saved tensor, and writes down what became of it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction

from actzip import kernels
from actzip.autograd import slots
from actzip.autograd.calls import Calls
from actzip.autograd.copies import Copies
from actzip.autograd.decide import Decide, is_ours, unseen
from actzip.autograd.decision import Fate, Saved
from actzip.autograd.failures import Failures
from actzip.autograd.gradient_graphs import GradientGraphs
from actzip.autograd.identity import Wanted, is_cast, is_parameter, node_of, storage_of, tensors_in
from actzip.autograd.ledger import Ledger, Row, Stats
from actzip.autograd.module_paths import Paths
from actzip.autograd.observe import Observer
from actzip.autograd.on_ctx import ON_CTX, tensors_on
from actzip.autograd.recipe import Reader, unpack
from actzip.autograd.seeds import seed_at
from actzip.autograd.sliced_tensor import parts_of, read
from actzip.autograd.slots import Plan, Slot
from actzip.autograd.slots.derivations import cheap
from actzip.autograd.stored import Pool
from actzip.autograd.tensor_store import TensorStore
from actzip.autograd.weights import Weights
from actzip.methods.base import Derives, Policy, Role
from actzip.torch_private import DisableTorchFunction, set_grad_enabled

COMPILED = "CompiledFunctionBackward"  #: the node of a compiled graph
_PARAMETER = nn.Parameter


@dataclass(frozen=True)
class Settings:
    """What a session tells each of its forward passes."""

    policy: Policy
    min_bytes: int
    seed: int
    paths: Paths
    pool: Pool
    failures: Failures
    derives: Derives = Derives.NOTHING
    observer: Observer | None = None  #: looks at the backward of this pass


def _is_weight(t: Any) -> bool:
    """Whether this is a parameter or a view of one, or nothing, as can be told at once."""
    if t is None or type(t) is _PARAMETER:
        return True
    return type(t) is Tensor and type(t._base) is _PARAMETER


class ForwardPass:
    """Visits every node of one forward pass; holds no tensor once the pass is over."""

    def __init__(
        self, settings: Settings, root: nn.Module | None, running: nn.Module | None = None
    ):
        """`running`: what is called, the root or a part of it."""
        # weak: the session outlives the pass, and the model's hooks hold the session
        self._root = None if root is None else weakref.ref(root)
        self._part = None if running is root or running is None else weakref.ref(running)
        self._settings = settings
        self._min_bytes = settings.min_bytes
        self._paths = settings.paths
        self._slice_bytes = settings.policy.slice_bytes
        self._weights = Weights(root)
        self._known: set[int] | None = None  # their names, once asked for
        self._store = TensorStore(settings.pool, settings.seed, settings.policy.swap)
        self.deferred = self._store.deferred  #: a ReLU's result that waits for the layer behind it
        self.copies = Copies()  #: what was copied into what
        self.derives = settings.derives is not Derives.NOTHING  #: asks for `made`
        self._calls = Calls(settings.derives is Derives.LOSSY) if self.derives else None
        #: nodes of which `made` should hear, when a call made one alone
        self.cheap = cheap(settings.derives is Derives.LOSSY)
        self._decide = Decide(settings.policy, self._store, self.copies, self._calls)
        self.gradient_graphs = GradientGraphs()  #: the watcher's
        self.ledger = Ledger()
        self.gave_way = False  #: to another session, for a part of the pass
        self.visited = False  #: whether any autograd node was seen
        self._running = True
        self._packed_graphs = 0  # compiled, and run since their node was met
        self._graphs = 0  # compiled, all
        self._readers: dict[str, Reader] = {}  # of its values in a lossy code

    @property
    def root(self) -> nn.Module | None:
        return None if self._root is None else self._root()

    @property
    def policy(self) -> Policy:
        """The method at work in this pass."""
        return self._settings.policy

    @property
    def looks(self) -> bool:
        """Whether its backward is looked at."""
        return self._settings.observer is not None

    def settle(self) -> None:
        """Something else than a layer comes: what waits is stored as it is now."""
        with DisableTorchFunction(), torch.no_grad():
            self._store.settle()

    def visit(self, node: Any, number: int, args: object, kwargs: object) -> None:
        """Look at the saved tensors of a node that an op with these arguments just made."""
        plan = slots.PLANS.get(type(node)) or slots.plan(node)
        self.visited = True
        if self._packed_graphs and plan.node == COMPILED:  # what it saves is packed and counted
            self._packed_graphs -= 1
            return
        if plan.copies:
            copied = self.copies.made(number, node, (args, kwargs))
            if copied is not None:
                self._store.pin(copied)
            return
        for slot in plan.slots:
            raw = getattr(node, slot.raw)
            if type(raw) is tuple:
                for i, item in enumerate(raw):
                    if not _is_weight(item.data):
                        element = slots.element(plan, slot, i)
                        self._look(node, plan, element, item, item.data, (args, kwargs))
            elif raw is not None:
                t = raw.data  # `_is_weight`, written out: leave most tensors early and cheaply
                kind = type(t)
                if kind is _PARAMETER or t is None:
                    continue
                if kind is not Tensor or type(t._base) is not _PARAMETER:
                    self._look(node, plan, slot, raw, t, (args, kwargs))
        if isinstance(node, BackwardCFunction):
            self._look_at_ctx(node, plan)
        if self._readers:
            if self._settings.observer is not None:
                self._settings.observer.watch(node, self._readers)
            self._readers = {}

    def compiled(self) -> tuple[str, int]:
        """A compiled graph runs, and packs what it saves by itself: where, and the seed for it."""
        self._packed_graphs += 1
        self._graphs += 1
        path = self._settings.paths.inside(self.root)
        return path, seed_at(self._settings.seed, -self._graphs)

    def is_weight(self, t: Tensor) -> bool:
        """Whether it is a parameter or a buffer, or a view of one."""
        storage = storage_of(t)
        known = storage is not None and storage._cdata in self._weights.storages
        return known or is_parameter(t, node_of(t))

    def made(self, node: Any, func: Any, args: Any, kwargs: Any, out: Tensor) -> None:
        """A cheap call that made this one node gave `out`: it can be made again."""
        calls = self._calls
        if calls is None:
            return
        with DisableTorchFunction():
            large = out.numel() * out.element_size() >= self._min_bytes
            if large and storage_of(out) is not None:
                noise = self._store.noise.get(node._sequence_nr())
                call = calls.add(node, out, func, args, kwargs, noise)
                if call is not None:
                    self._store.pin(out)
                    for operand in call.operands:
                        if operand.key[0] not in self._store.pinned:
                            t = operand.now()
                            if t is not None:
                                self._store.pin(t)

    def expose(self, t: object) -> None:
        """The user gets this tensor's memory under another version, or under none."""
        if isinstance(t, Tensor):
            self._store.expose(t)

    def contain(self, error: Exception, rows: Sequence[Row] = ()) -> bool:
        """An error of ours: autograd keeps what these rows speak of, and the step goes on; False
        when the error is to be raised again."""
        why = self._settings.failures.contain(error)
        for row in rows:
            row.reason, row.codec, row.shared_with, row.stored_bytes = why, "", "", row.raw_bytes
            row.fate, row.lengths = Fate.LEFT, ()
        if why and not rows:
            self.ledger.unseen[why] += 1
        return bool(why)

    def passed_over(self, reason: str) -> None:
        """An op ran where what it saves is not looked at."""
        self.ledger.unseen[reason] += 1

    def returned(self, out: object) -> None:
        """The call whose nodes were just visited gives this to the user."""
        tensors = [t for t in tensors_in(out) if storage_of(t) is not None]
        for t in tensors:
            self._store.pin(t)
        self.copies.returned(tensors)

    def _look(self, node: Any, plan: Plan, slot: Slot, raw: Any, t: Any, call: object) -> None:
        """A saved tensor: most are small."""
        try:  # `storage_of`, written out for the usual kind
            usual = type(t) is Tensor and not t.is_nested
            storage = t.untyped_storage() if usual else storage_of(t)
        except RuntimeError:
            storage = None
        if storage is None:
            self.ledger.unseen[unseen(raw, t)] += 1
            return
        nbytes = storage.nbytes()
        # a number by itself: Python's own are saved so, and a tensor of ours would promote dtypes
        if nbytes < self._min_bytes or (not t.dim() and nbytes == t.element_size()):
            self.ledger.small[storage._cdata] = nbytes
        elif self._running:
            known = self._known
            if known is None:
                known = self._known = self._weights.storages
            if storage._cdata in known:
                return
            rows = self.ledger.rows
            count, graded = len(rows), torch.is_grad_enabled()
            with DisableTorchFunction():
                set_grad_enabled(False)  # no_grad() would do it in eight calls
                try:
                    self._keep(node, plan, slot, raw, t, storage, call)
                except Exception as error:
                    if not self.contain(error, rows[count:]):
                        raise
                finally:
                    set_grad_enabled(graded)

    def _keep(
        self,
        node: Any,
        plan: Plan,
        slot: Slot,
        raw: Any,
        t: Tensor,
        storage: torch.UntypedStorage,
        call: object,
    ) -> None:
        try:  # `node_of`, written out
            maker = t.grad_fn
        except RuntimeError:
            maker = None
        if is_parameter(t, maker):
            return
        if not is_ours(node, slot, raw, t):
            self.ledger.unseen[unseen(raw, t)] += 1
            return
        root = None if self._root is None else self._root()
        path = self._paths.here(root, None if self._part is None else self._part())
        if path is None:
            # The model is not running: an interrupt ended its forward without telling anyone.
            self._running = False
            return
        if maker is None and is_cast(t, tensors_in(call), self._weights.storages):
            return
        rule = slot.rule
        if rule is None:
            self.ledger.unknown[plan.node] += 1
        elif rule.refine is not None:
            rule = rule.at(node)
        want = Wanted.of(t, storage._cdata)
        raw_bytes = self._store.count(want, storage)
        role = rule.role if rule else Role.EXACT
        order = self.gradient_graphs.order(node) if self.gradient_graphs else 0
        row = self.ledger.open(path, plan.node, slot.name, role, plan.op, raw_bytes, order)
        limit = self._slice_bytes
        parts = 1 if limit is None else parts_of(node, plan.op, slot.name, t, limit)
        maker = maker if want.unit is t else node_of(want.unit)
        saved = Saved(node, raw, rule, want, row, maker, parts)
        if self._calls is not None:
            self._store.savers.setdefault(want.key, set()).add(node._sequence_nr())
        reader = self._store.keep(saved, self._decide(saved))
        if reader is not None:
            hook = unpack if parts == 1 else partial(read, parts=parts)
            raw.register_hooks(lambda _: reader, hook)
            if (role is Role.LINEAR or role is Role.NONLINEAR) and reader.stored.site:
                reader.name = row.site.name
                self._readers[slot.name] = reader

    def _look_at_ctx(self, node: Any, plan: Plan) -> None:
        """Name what a custom function keeps past `save_for_backward`: no hook reaches it."""
        for name, t in tensors_on(node):
            storage = storage_of(t)
            if storage is None or not self._running:
                continue
            if is_parameter(t, node_of(t)) or storage._cdata in self._weights.storages:
                self.ledger.weights_on_ctx[plan.node, storage._cdata] = storage.nbytes()
            elif storage.nbytes() >= self._min_bytes:
                part = None if self._part is None else self._part()
                path = self._settings.paths.here(self.root, part)
                with DisableTorchFunction(), torch.no_grad():
                    want = Wanted.of(t, storage._cdata)
                    raw = self._store.count(want, storage)
                    row = self.ledger.open(path or "", plan.node, name, Role.EXACT, plan.op, raw)
                    self._store.hold(row, want, ON_CTX)

    def close(self) -> None:
        """The pass is over: no memory is held for payloads still to come."""
        try:
            self.settle()
        except Exception as error:
            if not self.contain(error):
                raise
        finally:
            self._store.close()
            if self._calls is not None:
                self._calls.clear()
            self._settings.pool.slabs.close()

    def stats(self) -> Stats:
        """What became of every saved tensor so far."""
        pool, stats = self._settings.pool, self.ledger.stats(self._weights.storages)
        stats.slab_bytes, stats.buffer_bytes = pool.slabs.nbytes, pool.buffers.nbytes
        names = sorted(map(str, pool.devices)) or ["cpu"]
        told = {name: kernels.backend_name(name) for name in names}
        several = ", ".join(f"{name}: {best}" for name, best in told.items())
        stats.backend = several if len(told) > 1 else told[names[0]]
        stats.backends = {name: kernels.handed_out(name) for name in names}
        return stats
