"""Where every byte went: one row per saved tensor of a forward pass."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field, replace

from actzip.codecs.lengths import Length
from actzip.control.op import Op
from actzip.methods.base import Role, Site, site


class Fate(enum.Enum):
    """What happens to a saved tensor."""

    LEFT = "left alone"  #: autograd keeps it
    SHARED = "shared"  #: it is read from a tensor that is stored already
    SHAPE = "shape"  #: only its shape is kept
    BITS = "bits"  #: one bit per element is kept
    DEFERRED = "deferred"  #: so it is, unless the next op stores its values
    STORED = "stored"  #: its values are kept in a code
    DERIVED = "derived"  #: it is made again from stored tensors


@dataclass(slots=True)
class Row:
    """One saved tensor: what it would have cost, what it costs, and why."""

    site: Site
    raw_bytes: int  #: its storage, counted at the first saved tensor that reads it
    fate: Fate = Fate.LEFT  #: what happened to it
    stored_bytes: int = 0
    codec: str = ""
    precision: tuple[str, float] | None = None  #: of the codec: mean bits, or mean error bound
    shared_with: str = ""  #: the site that holds the bytes this one reads
    reason: str = ""  #: why it was left alone
    derived_from: str = ""  #: the sites whose tensors it is made again from
    recipe: str = ""  #: the last op of that
    count: int = 1  #: of the forward passes that the bytes are summed over
    lengths: tuple[Length, ...] = ()  #: of its bytes, while only the device knows them

    def settle(self) -> None:
        """Count its bytes without what is known to be spare by now."""
        if self.lengths and all(length.value is not None for length in self.lengths):
            self.stored_bytes -= sum(length.spare for length in self.lengths)
            self.lengths = ()

    @property
    def name(self) -> str:
        return self.site.name

    @property
    def module(self) -> str:
        return self.site.module

    @property
    def node(self) -> str:
        return self.site.node

    @property
    def slot(self) -> str:
        return self.site.slot

    @property
    def role(self) -> Role:
        return self.site.role


@dataclass
class Stats:
    """One forward pass, or all of a training step together, in bytes."""

    raw_bytes: int = 0  #: unique storages autograd would keep; no parameters, no buffers
    stored_bytes: int = 0  #: payloads with their headers, and what was left alone
    small_bytes: int = 0  #: of both: tensors under the size threshold
    sites: list[Row] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)  #: nodes no rule knows: how often
    unseen: Counter[str] = field(default_factory=Counter)  #: what actzip could not look into
    #: bytes of weights that an `autograd.Function` keeps on its ctx, by its node
    weights_on_ctx: Counter[str] = field(default_factory=Counter)
    slab_bytes: int = 0  #: slabs that payloads live in, at the moment of asking
    buffer_bytes: int = 0  #: buffers that decoded tensors go into, at the moment of asking
    #: the kernels that encode, "native", "triton" or "reference"; of several devices "cpu: native,
    #: cuda:0: triton"
    backend: str = ""
    #: of each device: its number formats that were used in this process, and whose kernels ran;
    #: a backend has not all formats
    backends: dict[str, dict[str, str]] = field(default_factory=dict)
    passes: int = 1  #: forward passes that the bytes are summed over

    @property
    def ratio(self) -> float:
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else 1.0

    @property
    def compressed(self) -> int:
        """How many saved tensors are held by actzip."""
        return sum(row.fate is not Fate.LEFT for row in self.sites)

    def __add__(self, later: Stats) -> Stats:
        """Both together, a row for each site; what does not add up is as `later` has it."""
        rows = {row.name: row for row in self.sites}
        for row in later.sites:
            before = rows.get(row.name)
            rows[row.name] = row if before is None else _sum(before, row)
        return replace(
            later,
            raw_bytes=self.raw_bytes + later.raw_bytes,
            stored_bytes=self.stored_bytes + later.stored_bytes,
            small_bytes=self.small_bytes + later.small_bytes,
            sites=list(rows.values()),
            unknown=self.unknown + later.unknown,
            unseen=self.unseen + later.unseen,
            weights_on_ctx=self.weights_on_ctx | later.weights_on_ctx,  # the same ones in each pass
            passes=self.passes + later.passes,
        )


class Ledger:
    """Of one forward pass."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.small: dict[int, int] = {}  #: bytes of storages below the threshold, by their names
        self.unknown: Counter[str] = Counter()
        self.unseen: Counter[str] = Counter()
        self.weights_on_ctx: dict[tuple[str, int], int] = {}  #: bytes, by node and storage
        self._occurrences: dict[tuple[str, str, str, int], int] = {}

    def open(
        self, path: str, node: str, slot: str, role: Role, op: Op, raw_bytes: int, order: int = 0
    ) -> Row:
        """A new row: for what the module at `path` saves there."""
        where = (path, node, slot, order)
        occurrence = self._occurrences.get(where, 0)
        self._occurrences[where] = occurrence + 1
        found = site(path, node, slot, occurrence, role, False, op, order=order)
        row = Row(found, raw_bytes)
        self.rows.append(row)
        return row

    def add_small(self, nbytes: int) -> None:
        """A tensor below the threshold of which no storage is known."""
        self.small[-1 - len(self.small)] = nbytes  # a name that no storage has

    @property
    def empty(self) -> bool:
        """Whether no saved tensor was seen."""
        return not (self.rows or self.small or self.unseen)

    @property
    def coded_bytes(self) -> int:
        """Bytes of the payloads that this pass made."""
        return sum([row.stored_bytes for row in self.rows if row.codec])

    @property
    def compressed(self) -> bool:
        """Whether any saved tensor is in actzip's hands."""
        return any(row.fate is not Fate.LEFT for row in self.rows)

    def stats(self, weights: Container[int]) -> Stats:
        """The sums; `weights`: names of storages that are no activations."""
        small = sum(n for name, n in self.small.items() if name not in weights)
        for row in self.rows:
            row.settle()
        on_ctx: Counter[str] = Counter()
        for (node, _), nbytes in self.weights_on_ctx.items():
            on_ctx[node] += nbytes
        return Stats(
            raw_bytes=sum(row.raw_bytes for row in self.rows) + small,
            stored_bytes=sum(row.stored_bytes for row in self.rows) + small,
            small_bytes=small,
            sites=self.rows,
            unknown=self.unknown,
            unseen=self.unseen,
            weights_on_ctx=on_ctx,
        )


def _sum(row: Row, later: Row) -> Row:
    return replace(
        later,
        raw_bytes=row.raw_bytes + later.raw_bytes,
        stored_bytes=row.stored_bytes + later.stored_bytes,
        count=row.count + later.count,
    )
