"""A session's second front end: what is compiled inside the session.

The watcher sees ops; of a compiled graph there is nothing to see. So the graph itself is changed
when it is compiled (`wish`, rewrite.py), and its ops tell the session what they do when it runs
(`begin`, `codec`, `packed`): the pass that runs in this thread gets the rows, or a pass is begun.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn

from actzip.autograd import nesting, slots
from actzip.autograd.compiled import LISTENERS
from actzip.autograd.failures import Failures
from actzip.autograd.forward_pass import ForwardPass
from actzip.autograd.ledger import Fate, Row
from actzip.codecs.base import Codec
from actzip.codecs.keep import Keep
from actzip.codecs.mask import BitMask
from actzip.compiled import installation, ops
from actzip.compiled.derive import CODED
from actzip.compiled.eager_calls import EagerCalls
from actzip.compiled.saved import Wish
from actzip.compiled.sides import Sides, split
from actzip.compiled.sites import site_of
from actzip.methods.base import Policy, Role, Site
from actzip.methods.base import site as site_at

_WORDS = operator.attrgetter("module", "node", "slot", "occurrence")


class _Run:
    """A graph that runs: its pass, where it is in the model, and how many tensors are to come."""

    def __init__(self, trace: ForwardPass, path: str, packs: int, own: bool):
        self.trace, self.path, self.packs, self.own = trace, path, packs, own


class Front(ops.Hearer):
    """What a session has to do with compiled graphs."""

    def __init__(
        self,
        key: str,
        policy: Callable[[], Policy],
        min_bytes: int,
        root: Callable[[], nn.Module | None],
        begin: Callable[[nn.Module | None, bool], ForwardPass],
        wants: Callable[[], bool],
        finish: Callable[[ForwardPass], None],
        failures: Failures,
        derives: Callable[[], bool],
    ):
        self.key = key
        self.failures = failures
        self.graphs = False  #: whether something was compiled inside the session
        self.compiled = self.recompiled = 0  #: graphs, and of them those of code that had one
        self.forgotten = 0  #: times that all of them were, for other sessions' sake
        self._frames: set[int] = set()
        self._anew = 0  # graphs that were forgotten, of which none was compiled again yet
        self._policy, self._min_bytes, self._root = policy, min_bytes, root
        self._begin, self._finish, self._derives = begin, finish, derives
        #: sites from which the last look made other tensors again: what is known of them is of all
        self.derived: set[str] = set()
        #: sites that it stored together with another one, of which alone it told: that one
        self.shared: dict[str, list[Any]] = {}
        self._looked_at = -1
        self.calls = EagerCalls(wants)
        self._local = threading.local()
        LISTENERS[key] = self

    def remove(self) -> None:
        """The session is over: its graphs run on without it."""
        LISTENERS.pop(self.key, None)
        self.calls.remove()
        installation.removed(self)

    def looked(self, step: int, rows: Iterable[Row]) -> None:
        """A pass that was looked at is over, or a part's that runs in turn with others."""
        rows = list(rows)
        if step != self._looked_at:
            self.derived, self.shared = set(), {}
        self._looked_at = step
        self.derived.update(n for row in rows for n in row.derived_from.split(", ") if n)
        names = {row.name: row.site for row in rows}
        for row in rows:
            holder = names.get(row.shared_with)
            if holder is not None and {holder.role, row.site.role} <= set(CODED):
                self.shared[row.name] = [*_WORDS(holder), holder.role.value]

    def state_dict(self) -> dict[str, Any]:
        looks = self.calls.looks
        return {"derived": sorted(self.derived), "shared": self.shared, "looks": looks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.derived = set(state.get("derived", ()))
        self.shared = dict(state.get("shared", {}))
        root = self._root()
        if state.get("looks") and root is not None:
            self.calls.find(root)

    # -- a graph is compiled ---------------------------------------------------------------

    def traced(self) -> None:
        installation.traced(self)

    def compiles(self, frame: int | None) -> None:
        """A graph is compiled of the code that Dynamo knows by this number."""
        self.compiled += 1
        if frame in self._frames:
            self.recompiled += 1
        elif self._anew:  # Dynamo has a new number for it
            self._anew -= 1
            self.recompiled += 1
        if frame is not None:
            self._frames.add(frame)

    @property
    def has_graphs(self) -> bool:
        """Whether any was compiled that is not forgotten."""
        return bool(self._frames)

    def forget(self) -> None:
        """Its graphs are compiled again, for another session's sake."""
        self.forgotten += 1
        self._anew += len(self._frames)
        self._frames.clear()

    def entered(self) -> None:
        installation.prepare(self)

    def wish(self) -> Wish:
        root = self._root()
        kind = None if root is None else type(root)
        return Wish(self.key, self._policy(), self._min_bytes, kind, self._derives())

    def can_look(self) -> bool:
        """The model runs compiled: whether its next call can run uncompiled."""
        return self.calls.can_look(self._root())

    # -- a graph runs ----------------------------------------------------------------------

    def begin(self, graph: dict[str, Any]) -> int:
        try:
            return self._open(graph)
        except Exception as error:
            if not self.failures.contain(error):
                raise
            return 0

    def _open(self, graph: dict[str, Any]) -> int:
        running = [w for w in nesting.at_work() if w.key == self.key]
        begin = self._begin
        trace = running[-1].forward_pass if running else begin(self._root(), self.can_look())
        path, seed = trace.compiled()
        path = ".".join(part for part in path.split(".") if part and part != "_orig_mod")
        run = _Run(trace, path, int(graph["packs"]), not running)
        for said in graph["left"]:
            if said.get("small"):
                trace.ledger.add_small(int(said["bytes"]))
            else:
                trace.ledger.rows.append(_row(said, path))
        self._local.run = run
        self._count(run, 0)
        return seed

    def _count(self, run: _Run, packs: int) -> None:
        run.packs -= packs
        if run.packs == 0 and run.own:
            run.trace.close()
            self._finish(run.trace)

    def codec(self, site: dict[str, Any], x: Tensor) -> Codec:
        try:
            run: _Run | None = getattr(self._local, "run", None)
            policy = self._policy() if run is None else run.trace.policy
            if site["input"] and (run is None or run.trace.is_weight(x)):
                return Keep()
            where = site_of(site, run.path if run else "")
            where = self._told(where)
            known = not site.get("makes") or where.name in self.derived
            found = policy.codec(where, x) if known else policy.untold(where, x)
        except Exception as error:
            if not self.failures.contain(error):
                raise
            return Keep()
        return found or Keep()

    def _told(self, site: Site) -> Site:
        """The site under which looks tell of its tensor."""
        words = self.shared.get(site.name)
        if words is None:
            return site
        holder = (*words[:4], Role(words[4]), site.relu, slots.op(words[1]), site.maker)
        return site_at(*holder)

    def sides(self, site: dict[str, Any], x: Tensor, relu: Tensor) -> tuple[Codec, Sides | None]:
        try:
            run: _Run | None = getattr(self._local, "run", None)
            where = site_of(site, run.path if run else "")
            policy = self._policy() if run is None else run.trace.policy
            if where.name in policy.rectified and where.name in self.derived:
                found = split(x, relu)
                codec = found and policy.sign_exact(where, x, found.origins)
                if codec:
                    return codec, found
        except Exception as error:
            if not self.failures.contain(error):
                raise
        return self.codec(site, x), None

    def packed(
        self, site: dict[str, Any], number: int, x: Tensor, codec: Codec, nbytes: int
    ) -> None:
        run: _Run | None = getattr(self._local, "run", None)
        if run is None:
            return
        row = Row(site_of(site, run.path), x.numel() * x.element_size(), stored_bytes=nbytes)
        if isinstance(codec, Keep):
            row.reason = self._policy().reason(row.site)
        else:
            row.fate = Fate.BITS if isinstance(codec, BitMask) else Fate.STORED
            row.codec, row.precision = repr(codec), codec.precision()
        run.trace.ledger.rows.append(row)
        self._count(run, 1)


def _row(said: dict[str, Any], path: str) -> Row:
    """Of a tensor that the graph does not pack."""
    where, nbytes = site_of(said, path), int(said["bytes"])
    if "recipe" not in said:
        return Row(where, nbytes, Fate.LEFT, nbytes, reason=said["reason"])
    sources = ", ".join(site_of(source, path).name for source in said["from"])
    return Row(where, nbytes, Fate.DERIVED, derived_from=sources, recipe=said["recipe"])
