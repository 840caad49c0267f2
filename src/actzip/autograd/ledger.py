"""Where every byte went: one row per saved tensor of a forward pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from actzip.methods.base import Role, Site


@dataclass
class Row:
    """One saved tensor: what it would have cost, what it costs, and why."""

    site: Site
    raw_bytes: int  #: its storage, counted at the first saved tensor that reads it
    stored_bytes: int = 0
    codec: str = ""
    shared_with: str = ""  #: the site that holds the bytes this one reads
    reason: str = ""  #: why it was left alone

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
    """The last finished forward pass, in bytes; `Session.report()` shows it as a table."""

    raw_bytes: int = 0  #: unique storages autograd would keep; no parameters, no buffers
    stored_bytes: int = 0  #: payloads with their headers, and what was left alone
    small_bytes: int = 0  #: of both: tensors under the size threshold
    sites: list[Row] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)  #: nodes no rule knows: how often
    unseen: Counter[str] = field(default_factory=Counter)  #: what actzip could not look into
    slab_bytes: int = 0  #: slabs that payloads live in, at the moment of asking
    buffer_bytes: int = 0  #: buffers that decoded tensors go into, at the moment of asking
    backend: str = ""

    @property
    def ratio(self) -> float:
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else 1.0

    @property
    def compressed(self) -> int:
        """How many saved tensors are held by actzip."""
        return sum(not row.reason for row in self.sites)
