"""How precisely each site was stored, over the steps of a run: bits, or a bound on the error."""

from __future__ import annotations

import ast
import statistics
from typing import Any

import actzip
from actzip import codecs

LOOKS = 100  #: about how many steps of a run are looked at

#: site -> {"kind": "bits" or "error", "steps": […], "values": […]}, a value where it changed
Sites = dict[str, dict[str, Any]]


def is_look(step: int, steps: int) -> bool:
    """The first steps, in which methods learn most, and then every so many."""
    return step <= LOOKS // 5 or step % max(1, steps // LOOKS) == 0 or step == steps


def note(sites: Sites, step: int, session: actzip.Session) -> None:
    """Add how `step` stored each tensor to `sites`; what stayed as it was adds nothing."""
    for row in session.stats().sites:
        found = precision(row.codec) if row.codec else None
        if found is None:
            continue
        kind, value = found
        known = sites.get(row.name)
        if known is None or known["kind"] != kind:  # a method that begins with another codec
            known = sites[row.name] = {"kind": kind, "steps": [], "values": []}
        if not known["values"] or known["values"][-1] != value:
            known["steps"].append(step)
            known["values"].append(value)


def precision(codec: str) -> tuple[str, float] | None:
    """What a codec's repr says: ("bits", mean bits) or ("error", mean bound); None if neither."""
    return _said(ast.parse(codec, mode="eval").body)


def _said(call: ast.expr) -> tuple[str, float] | None:
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    given = {each.arg: each.value for each in call.keywords if each.arg}
    if "codec" in given:  # of the parts of a Split
        return _said(given["codec"])
    kind = getattr(codecs, call.func.id, None)
    for name in ("error", "bits"):
        value = ast.literal_eval(given[name]) if name in given else getattr(kind, name, None)
        if isinstance(value, int | float | tuple):
            mean = statistics.fmean(value) if isinstance(value, tuple) else float(value)
            return name, float(f"{mean:.4g}")
    return None
