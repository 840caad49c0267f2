"""One file per method; `resolve` turns what the user wrote into one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from actzip.methods.acgc import ACGC
from actzip.methods.actnn import ActNN
from actzip.methods.base import Method, Role, Site
from actzip.methods.comet import Comet
from actzip.methods.division import Division
from actzip.methods.fixed import Fixed
from actzip.methods.guarded import Guarded
from actzip.methods.lossless import Lossless

__all__ = [
    "ACGC",
    "METHODS",
    "ActNN",
    "Comet",
    "Division",
    "Fixed",
    "Guarded",
    "Lossless",
    "Method",
    "Role",
    "Site",
    "resolve",
]

#: Methods by the name that `compress(method=…)` and the command line take.
METHODS: dict[str, type[Method]] = {
    "lossless": Lossless,
    "actnn": ActNN,
    "division": Division,
    "comet": Comet,
    "acgc": ACGC,
    "fixed": Fixed,
}


def resolve(method: str | Method, options: dict[str, Any]) -> Method:
    """The method for a name and its options, or the method object as it is."""
    if isinstance(method, Method):
        if options:
            raise ValueError(
                f"{', '.join(options)}: options belong to a method's name; give them to "
                f"{type(method).__name__}(…) instead"
            )
        return method
    kind = METHODS.get(method) if isinstance(method, str) else None
    if kind is None:
        names = ", ".join(repr(name) for name in METHODS)
        raise ValueError(f"no method {method!r}; there are {names}, or pass a method object")
    allowed = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    unknown = [name for name in options if name not in allowed]
    if unknown:
        takes = ", ".join(allowed) or "no options"
        raise ValueError(f"{method!r} has no option {', '.join(unknown)}; it takes {takes}")
    return kind(**options)
