"""How precisely each site was stored, over the steps of a run: bits, or a bound on the error."""

from __future__ import annotations

from typing import Any

import actzip

LOOKS = 100  #: about how many steps of a run are looked at

#: site -> {"kind": "bits" or "error", "steps": […], "values": […]}, a value where it changed
Sites = dict[str, dict[str, Any]]


def is_look(step: int, steps: int) -> bool:
    """The first steps, in which methods learn most, and then every so many."""
    return step <= LOOKS // 5 or step % max(1, steps // LOOKS) == 0 or step == steps


def note(sites: Sites, step: int, session: actzip.Session) -> None:
    """Add how `step` stored each tensor to `sites`; what stayed as it was adds nothing."""
    for row in session.stats().sites:
        if not row.codec or row.precision is None:
            continue
        kind, value = row.precision[0], float(f"{row.precision[1]:.4g}")
        known = sites.get(row.name)
        if known is None or known["kind"] != kind:  # a method that begins with another codec
            known = sites[row.name] = {"kind": kind, "steps": [], "values": []}
        if not known["values"] or known["values"][-1] != value:
            known["steps"].append(step)
            known["values"].append(value)
