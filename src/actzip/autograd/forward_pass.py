"""One forward pass: looks at each saved tensor, and writes down what became of it."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from actzip import kernels
from actzip.autograd import slots
from actzip.autograd.calls import Calls
from actzip.autograd.copies import Copies
from actzip.autograd.decide import Decide, is_ours, unseen
from actzip.autograd.decision import Fate, Saved
from actzip.autograd.failures import Failures
from actzip.autograd.identity import Wanted, is_cast, is_parameter, node_of, storage_of, tensors_in
from actzip.autograd.ledger import Row, Stats
from actzip.autograd.module_paths import Paths
from actzip.autograd.observe import Observer
from actzip.autograd.recipe import Reader, unpack
from actzip.autograd.seeds import seed_at
from actzip.autograd.sliced_tensor import parts_of, read
from actzip.autograd.slots import Rule
from actzip.autograd.slots.derivations import derives
from actzip.autograd.stored import Pool
from actzip.autograd.tensor_store import TensorStore
from actzip.methods.base import Derives, Policy, Role, site
from actzip.torch_private import DisableTorchFunction, set_grad_enabled

_RAW = "_raw_saved_"
COMPILED = "CompiledFunctionBackward"  #: the node of a compiled graph


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


class Weights(NamedTuple):
    """A model's parameters and buffers: which objects, and the names of their storages."""

    objects: set[int]
    storages: set[int]


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
        self._store = TensorStore(settings.pool, settings.seed, settings.policy.swap)
        self._copies = Copies()
        derives = settings.derives
        self._calls = None if derives is Derives.NOTHING else Calls(derives is Derives.LOSSY)
        self._decide = Decide(settings.policy, self._store, self._copies, self._calls)
        self.gave_way = False  #: to another session, for a part of the pass
        self._running = True
        self._args: object = ()  # of the call that made the node being visited
        self._packed_graphs = 0  # compiled, and run since their node was met
        self._graphs = 0  # compiled, all
        self._readers: dict[str, Reader] = {}  # of its values in a lossy code
        self._plans: dict[type, list[tuple[str, str, Rule | None]]] = {}
        self._occurrences: dict[tuple[str, str, str], int] = {}
        self._rows: list[Row] = []
        self._small: dict[int, int] = {}
        self._unknown: Counter[str] = Counter()
        self._unseen: Counter[str] = Counter()

    @property
    def root(self) -> nn.Module | None:
        return None if self._root is None else self._root()

    @property
    def policy(self) -> Policy:
        """The method at work in this pass."""
        return self._settings.policy

    @property
    def defers(self) -> bool:
        """Whether a ReLU's result waits for the layer behind it, see deferred_mask.py."""
        return bool(self._store.deferred)

    def settle(self) -> None:
        """Something else than a layer comes: what waits is stored as it is now."""
        with DisableTorchFunction(), torch.no_grad():
            self._store.settle()

    @cached_property
    def _weights(self) -> Weights:
        """The root's parameters and buffers, frozen ones too."""
        root = self.root
        if root is None:
            return Weights(set(), set())
        objects, storages = set(), set()
        for t in (*root.parameters(), *root.buffers()):
            storage = storage_of(t)
            if storage is not None:
                objects.add(id(t))
                storages.add(storage._cdata)
        return Weights(objects, storages)

    def visit(self, node: Any, number: int, args: object, kwargs: object) -> None:
        """Look at the saved tensors of a node that an op with these arguments just made."""
        kind = type(node)
        plan = self._plans.get(kind)
        if self._packed_graphs and kind.__name__ == COMPILED:  # what it saves is packed and counted
            self._packed_graphs -= 1
            self._plans.setdefault(kind, [])
            return
        if plan is None:
            plan = self._plans[kind] = [
                (slot, _RAW + slot, slots.rule(kind.__name__, slot))
                for slot in slots.slots_of(node)
            ]
        if not plan:  # views, sums and the like save nothing; most nodes end here
            if kind.__name__ in slots.COPIES:
                copied = self._copies.made(number, node, (args, kwargs))
                if copied is not None:
                    self._store.pin(copied)
            return
        self._args = args, kwargs
        for slot, attribute, rule in plan:
            raw = getattr(node, attribute)
            if type(raw) is tuple:
                for i, item in enumerate(raw):
                    name = f"{slot}[{i}]"
                    self._look(node, name, slots.rule(kind.__name__, name), item)
            elif raw is not None:
                self._look(node, slot, rule, raw)
        self._args = ()
        if self._readers and self._settings.observer is not None:
            self._settings.observer.watch(node, self._readers)
        self._readers = {}

    def compiled(self) -> tuple[str, int]:
        """A compiled graph runs, and packs what it saves by itself: where, and the seed for it."""
        self._packed_graphs += 1
        self._graphs += 1
        path = self._settings.paths.inside(self.root)
        return path, seed_at(self._settings.seed, -self._graphs)

    def add(self, row: Row) -> None:
        """Something that a compiled graph saves."""
        self._rows.append(row)

    def add_small(self, nbytes: int) -> None:
        """The same of a tensor below the threshold."""
        self._small[-1 - len(self._small)] = nbytes  # a name that no storage has

    def made(self, node: Any, func: Any, args: Any, kwargs: Any, out: Tensor) -> None:
        """A call that made this one node gave `out`: if it was cheap, it can be made again."""
        calls = self._calls
        if calls is None or not derives(type(node).__name__, calls.lossy):
            return
        with DisableTorchFunction():
            large = out.numel() * out.element_size() >= self._settings.min_bytes
            if large and storage_of(out) is not None:
                noise = self._store.noise.get(int(node._sequence_nr()))
                for t in calls.add(node, out, func, args, kwargs, noise):
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
            row.fate = Fate.LEFT
        if why and not rows:
            self._unseen[why] += 1
        return bool(why)

    def returned(self, out: object) -> None:
        """The call whose nodes were just visited gives this to the user."""
        if self._copies.pending:
            tensors = [t for t in tensors_in(out) if storage_of(t) is not None]
            for t in tensors:
                self._store.pin(t)
            self._copies.returned(tensors)

    def _look(self, node: Any, slot: str, rule: Rule | None, raw: Any) -> None:
        """Most tensors are small or weights: leave them early and cheaply."""
        t = raw.data
        if t is None or id(t) in self._weights.objects:
            return
        storage = storage_of(t)
        if storage is None:
            self._unseen[unseen(raw, t)] += 1
            return
        nbytes = storage.nbytes()
        if nbytes < self._settings.min_bytes:
            self._small[storage._cdata] = nbytes
        elif self._running and storage._cdata not in self._weights.storages and not is_parameter(t):
            graded = torch.is_grad_enabled()
            with DisableTorchFunction():
                set_grad_enabled(False)  # no_grad() would do it in eight calls
                rows = len(self._rows)
                try:
                    self._keep(node, slot, rule, raw, t, storage)
                except Exception as error:
                    if not self.contain(error, self._rows[rows:]):
                        raise
                finally:
                    set_grad_enabled(graded)

    def _keep(
        self,
        node: Any,
        slot: str,
        rule: Rule | None,
        raw: Any,
        t: Tensor,
        storage: torch.UntypedStorage,
    ) -> None:
        if not is_ours(node, slot, raw, t):
            self._unseen[unseen(raw, t)] += 1
            return
        part = None if self._part is None else self._part()
        path = self._settings.paths.here(self.root, part)
        if path is None:
            # The model is not running: an interrupt ended its forward without telling anyone.
            self._running = False
            return
        if node_of(t) is None and is_cast(t, tensors_in(self._args), self._weights.storages):
            return
        name = type(node).__name__
        if rule is None:
            self._unknown[name] += 1
        else:
            rule = rule.at(node)
        want = Wanted.of(t, storage._cdata)
        raw_bytes = self._store.count(want, storage)
        row = self._row(path, name, slot, rule.role if rule else Role.EXACT, raw_bytes)
        parts = parts_of(node, slot, t, self._settings.policy.slice_bytes)
        saved = Saved(node, raw, rule, want, row, parts)
        if self._calls is not None:
            self._store.savers.setdefault(want.key, set()).add(saved.number)
        reader = self._store.keep(saved, self._decide(saved))
        if reader is not None:
            hook = unpack if parts == 1 else partial(read, parts=parts)
            raw.register_hooks(lambda _: reader, hook)
            if row.role in (Role.LINEAR, Role.NONLINEAR) and reader.stored.site:
                reader.name = row.name
                self._readers[slot] = reader

    def _row(self, path: str, node: str, slot: str, role: Role, raw_bytes: int) -> Row:
        where = (path, node, slot)
        occurrence = self._occurrences.get(where, 0)
        self._occurrences[where] = occurrence + 1
        row = Row(site(path, node, slot, occurrence, role, False, slots.op(node)), raw_bytes)
        self._rows.append(row)
        return row

    @property
    def empty(self) -> bool:
        """Whether no saved tensor was seen."""
        return not (self._rows or self._small or self._unseen)

    @property
    def visited(self) -> bool:
        """Whether any autograd node was seen."""
        return bool(self._plans)

    @property
    def coded_bytes(self) -> int:
        """Bytes of the payloads that this pass made."""
        return sum(row.stored_bytes for row in self._rows if row.codec)

    @property
    def compressed(self) -> bool:
        """Whether any saved tensor is in actzip's hands."""
        return any(row.fate is not Fate.LEFT for row in self._rows)

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
        weights = self._weights.storages
        small = sum(n for name, n in self._small.items() if name not in weights)
        return Stats(
            raw_bytes=sum(row.raw_bytes for row in self._rows) + small,
            stored_bytes=sum(row.stored_bytes for row in self._rows) + small,
            small_bytes=small,
            sites=self._rows,
            unknown=self._unknown,
            unseen=self._unseen,
            slab_bytes=self._settings.pool.slabs.nbytes,
            buffer_bytes=self._settings.pool.buffers.nbytes,
            backend=kernels.backend_name(),
        )
