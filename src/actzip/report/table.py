"""A forward pass as a table: one line per module, the largest first."""

from __future__ import annotations

import io
from collections import defaultdict

from rich.console import Console
from rich.table import Table

from actzip.autograd.ledger import Row, Stats
from actzip.memory.measure import size

_WIDTH = 110


def table(stats: Stats, method: str) -> str:
    """Where the bytes of the last forward pass went."""
    title = f"{method}: {size(stats.raw_bytes)} saved as {size(stats.stored_bytes)}"
    grid = Table(
        title=f"{title}, {stats.ratio:.2f}x ({stats.backend} kernels)", title_justify="left"
    )
    grid.add_column("module", overflow="fold")
    grid.add_column("plain", justify="right")
    grid.add_column("stored", justify="right")
    grid.add_column("ratio", justify="right")
    grid.add_column("what is kept", overflow="fold")
    modules: dict[str, list[Row]] = defaultdict(list)
    for row in stats.sites:
        modules[row.module].append(row)
    for module, rows in sorted(modules.items(), key=lambda item: -_raw(item[1])):
        raw, stored = _raw(rows), sum(row.stored_bytes for row in rows)
        ratio = f"{raw / stored:.1f}x" if stored and raw else "-"
        grid.add_row(module or "(model)", size(raw), size(stored), ratio, _kept(rows))
    if stats.small_bytes:
        small = size(stats.small_bytes)
        grid.add_row("(small tensors)", small, small, "1.0x", "left alone")
    for what, counts in (("no rule for", stats.unknown), ("not seen", stats.unseen)):
        for name, count in counts.most_common():
            grid.add_row("", "", "", "", f"{what}: {name} ({count} times)")
    out = io.StringIO()
    Console(file=out, width=_WIDTH).print(grid)
    return out.getvalue()


def _raw(rows: list[Row]) -> int:
    return sum(row.raw_bytes for row in rows)


def _kept(rows: list[Row]) -> str:
    return "\n".join(
        f"{row.node.removesuffix('Backward0')}.{row.slot}: {_how(row)}" for row in rows
    )


def _how(row: Row) -> str:
    if row.codec:
        return f"{row.role.value}, {row.codec}, {size(row.stored_bytes)}"
    if row.shared_with:
        return f"{row.role.value}, shared with {row.shared_with}"
    return f"{row.role.value}, left alone, {size(row.stored_bytes)}"
