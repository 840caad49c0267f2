"""The bytes of a forward pass by module and by op, before and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from actzip.autograd.ledger import Row, Stats

SMALL = "(small tensors)"


@dataclass(frozen=True)
class Share:
    """What one module or op keeps for backward."""

    name: str
    raw_bytes: int  #: as PyTorch keeps it
    stored_bytes: int  #: as it is kept now


def by_module(stats: Stats) -> list[Share]:
    """A share per module, in the order of forward; they add up to the whole pass."""
    return _shares(stats, lambda row: row.module or "(model)")


def by_op(stats: Stats) -> list[Share]:
    """A share per kind of op, the largest first; they add up to the whole pass."""
    found = _shares(stats, lambda row: row.node.removesuffix("Backward0"))
    return sorted(found, key=lambda share: -share.raw_bytes)


def _shares(stats: Stats, name: Callable[[Row], str]) -> list[Share]:
    raw: dict[str, int] = {}
    stored: dict[str, int] = {}
    owners = _owners(stats)
    for row in stats.sites:
        owner = owners.get(row.name, row)
        for sums, each, nbytes in ((raw, row, row.raw_bytes), (stored, owner, row.stored_bytes)):
            if nbytes:
                sums[name(each)] = sums.get(name(each), 0) + nbytes
    found = [
        Share(each, raw.get(each, 0), stored.get(each, 0))
        for each in dict.fromkeys((*raw, *stored))
    ]
    if stats.small_bytes:
        found.append(Share(SMALL, stats.small_bytes, stats.small_bytes))
    return found


def _owners(stats: Stats) -> dict[str, Row]:
    """For a site that holds what others read: the row that has the plain bytes of the tensor.

    The plain bytes are counted where the tensor is first saved, at a ReLU, say, and the payload
    where it is made, at the next convolution: set side by side, they must be at one place.
    """
    held = {row.name for row in stats.sites if row.stored_bytes and not row.raw_bytes}
    found: dict[str, Row] = {}
    for row in stats.sites:
        if row.raw_bytes and row.shared_with in held:
            found.setdefault(row.shared_with, row)
    return found
