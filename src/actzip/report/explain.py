"""Why is this tensor as large as it is, and what could one do about it?"""

from __future__ import annotations

from actzip.autograd.ledger import Fate, Row, Stats
from actzip.autograd.on_ctx import ON_CTX
from actzip.memory.measure import size
from actzip.methods.base import Role
from actzip.report import codes


def explain(stats: Stats, name: str, min_bytes: int) -> str:
    """A paragraph per saved tensor whose module path or site name contains `name`."""
    rows = [row for row in stats.sites if name in row.name]
    if not rows:
        modules = sorted({row.module or "(model)" for row in stats.sites})
        return (
            f"No saved tensor of at least {min_bytes} bytes has {name!r} in its name. "
            f"Modules that have one: {', '.join(modules) or 'none'}."
        )
    return "\n".join(_one(row) for row in rows)


def nothing(stats: Stats, min_bytes: int, *, blind: bool) -> str | None:
    """The warning of a pass in which nothing was compressed; None when all is as it should be.

    blind  no autograd node was seen, and some parameter should have had one
    """
    if not stats.raw_bytes and not stats.unseen:
        if not blind:
            return None
        return (
            "actzip saw no saved tensor in this forward pass: its ops ran in another thread, under "
            "no_grad, or inside a compiled or scripted function"
        )
    if not stats.sites and not stats.unseen:
        return (
            f"actzip compressed nothing in this forward pass: all saved tensors are smaller than "
            f"min_bytes={min_bytes}"
        )
    reasons = {row.reason for row in stats.sites}
    failed = any("could not store" in r or r.startswith("no codec") for r in reasons)
    if not failed and not all("no rule" in r for r in reasons):
        return None  # the method keeps such tensors exactly, or backward must have them so
    if stats.sites and all(row.node == "CompiledFunctionBackward" for row in stats.sites):
        return (
            "actzip compressed nothing in this forward pass: it ran in compiled graphs that were "
            "left as they are; a warning said why when they were compiled, and docs/compile.md "
            "says what is taken and what is not"
        )
    return "actzip compressed nothing in this forward pass: " + "; ".join(
        sorted(reasons | set(stats.unseen))
    )


def _one(row: Row) -> str:
    if row.fate is Fate.DERIVED:
        held = f" (stored instead: {size(row.stored_bytes)})" if row.codec else ""
        return f"{row.name}: derived by {row.recipe} from {row.derived_from}{held}."
    if row.fate is not Fate.LEFT and row.codec:
        code = codes.short(row.codec)
        return f"{row.name}: stored with {code} as {row.role.value}, {size(row.stored_bytes)}."
    if row.fate is not Fate.LEFT:
        return f"{row.name}: costs nothing, it is read from {row.shared_with}."
    return f"{row.name}: left alone, {size(row.stored_bytes)}: {row.reason}. {_advice(row)}"


def _advice(row: Row) -> str:
    if row.reason.startswith("no rule"):
        return (
            f"If you know what backward reads of it, add actzip.register_slot({row.node!r}, "
            f"{row.slot!r}, role)."
        )
    if row.reason == ON_CTX:
        return "With ctx.save_for_backward in its place, register_slot would reach it."
    if row.role in (Role.LINEAR, Role.NONLINEAR):
        return "A lossy method would compress it."
    return "Nothing is to be gained here without changing the gradient."
