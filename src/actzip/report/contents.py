"""What a report says of the saved tensors: modules, the largest first, and what each keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from actzip.autograd.ledger import Row, Stats
from actzip.autograd.on_ctx import ON_CTX
from actzip.memory.measure import size
from actzip.report import codes
from actzip.report.folding import fold, prefix, unnumbered


@dataclass(frozen=True)
class Entry:
    """A module, or several that are equal: its bytes, and a line for each kind of tensor."""

    name: str
    raw: int
    stored: int
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contents:
    """All that a report lists."""

    common: str  #: the names that all paths begin with, which are cut
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]  #: what has no rule, was not seen, is held on ctx


def contents(stats: Stats, depth: int | None = None, top: int | None = None) -> Contents:
    """The modules of `stats`, by their bytes.

    depth  put modules together whose paths begin with the same so many names
    top    only so many entries, and one for the rest
    """
    for name, value in (("depth", depth), ("top", top)):
        if value is not None and (isinstance(value, bool) or value < 1):
            raise ValueError(f"report({name}=…) is a whole number from 1 on, got {value!r}")
    common = prefix({row.module for row in stats.sites})
    groups = sorted(_groups(stats.sites, common, depth).items(), key=lambda item: -_raw(item[1]))
    entries = [_entry(module, rows, common) for module, rows in groups[:top]]
    rest = [row for _, rows in groups[top:] for row in rows] if top is not None else []
    if rest:
        entries.append(Entry(f"({len(groups[top:])} more)", _raw(rest), _stored(rest)))
    if stats.small_bytes:
        entries.append(Entry("(small tensors)", stats.small_bytes, stats.small_bytes))
    notes = [
        f"{what}: {name} ({count} times)"
        for what, counts in (("no rule for", stats.unknown), ("not seen", stats.unseen))
        for name, count in counts.most_common()
    ]
    notes += [
        f"weights on ctx, which are no activations: {name}, {size(nbytes)}"
        for name, nbytes in stats.weights_on_ctx.most_common()
    ]
    return Contents(common, tuple(entries), tuple(notes))


def title(stats: Stats, method: str, peak: int) -> str:
    """The sums in one sentence; `peak`: payload bytes held at once, the most."""
    said = f"{codes.short(method)}: {size(stats.raw_bytes)} saved as {size(stats.stored_bytes)}"
    said += f", {stats.ratio:.2f}x ({stats.backend} kernels)"
    passes = "" if stats.passes == 1 else f"{stats.passes} forward passes of a step; "
    return said + f"; {passes}at most {size(peak)} in codes at once"


def ratio(raw: int, stored: int) -> str:
    return f"{raw / stored:.1f}x" if stored and raw else "-"


def _groups(rows: Iterable[Row], common: str, depth: int | None) -> dict[str, list[Row]]:
    """The rows of each line: of a module, of those below it, of equal layers."""
    modules: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        modules[_path(row.module, common, depth)].append(row)
    folded = fold(list(modules.items()), lambda rows: tuple(sorted(map(_kind, rows))))
    return {module: [row for rows in found for row in rows] for module, found in folded.items()}


def _path(module: str, common: str, depth: int | None) -> str:
    if common:  # a module above the common part has no name below it, and keeps its own
        module = module.removeprefix(f"{common}.")
    return module if depth is None else ".".join(module.split(".")[:depth])


def _kind(row: Row) -> tuple[str, ...]:
    """Equal for the same tensor of equal layers."""
    shared = unnumbered(row.shared_with or row.derived_from)
    return row.node, row.slot, row.role.value, codes.kind(row.codec), shared, str(row.raw_bytes)


def _entry(module: str, rows: list[Row], common: str) -> Entry:
    """A module, with what it keeps of each kind."""
    kept: dict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        kept[row.node, row.slot, _fate(row)].append(row)
    lines = []
    for same in kept.values():
        count = f" ({len(same)}×)" if len(same) > 1 else ""
        op = same[0].node.removesuffix("Backward0")
        lines.append(f"{op}.{same[0].slot}: {_how(same, common)}{count}")
    return Entry(module or "(model)", _raw(rows), _stored(rows), tuple(lines))


def _fate(row: Row) -> Hashable:
    if row.derived_from:
        return "derived", row.recipe, unnumbered(row.derived_from), row.codec
    if row.codec:
        return codes.kind(row.codec)
    return unnumbered(row.shared_with) if row.shared_with else None


def _how(rows: list[Row], common: str) -> str:
    row = rows[0]
    if row.derived_from:
        others = {name for each in rows for name in each.derived_from.split(", ")}
        sources = ", ".join(_source(row, name, common, len(rows)) for name in sorted(others)[:2])
        more = f" and {len(others) - 2} more" if len(others) > 2 and len(rows) == 1 else ""
        held = f", {size(_stored(rows))}" if row.codec else ""
        return f"{row.role.value}, derived from {sources}{more} by {row.recipe}{held}"
    if row.codec:
        code = codes.together(each.codec for each in rows)
        return f"{row.role.value}, {code}, {size(_stored(rows))}"
    if row.shared_with:
        names = {each.shared_with for each in rows}
        name = _path(row.shared_with, common, None).replace("Backward0", "")
        name = name if len(names) == 1 else unnumbered(name)
        return f"{row.role.value}, shared with {name}"
    where = f" ({row.reason})" if row.reason == ON_CTX else ""
    return f"{row.role.value}, left alone{where}, {size(_stored(rows))}"


def _source(row: Row, name: str, common: str, count: int) -> str:
    if name == row.name:
        return "what it was cast from"
    name = _path(name, common, None).replace("Backward0", "")
    return name if count == 1 else unnumbered(name)


def _raw(rows: list[Row]) -> int:
    return sum(row.raw_bytes for row in rows)


def _stored(rows: list[Row]) -> int:
    return sum(row.stored_bytes for row in rows)
