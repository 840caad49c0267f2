"""One file per method; `resolve` turns what the user wrote into one."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from actzip.entry_points import load
from actzip.methods.acgc import ACGC
from actzip.methods.actnn import ActNN
from actzip.methods.auto import Auto
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
    "Auto",
    "Comet",
    "Division",
    "Fixed",
    "Guarded",
    "Lossless",
    "Method",
    "Role",
    "Site",
    "method_class",
    "register_method",
    "resolve",
]

#: Methods by the name that `compress(method=…)` and the command line take.
METHODS: dict[str, type[Method]] = {
    "lossless": Lossless,
    "auto": Auto,
    "actnn": ActNN,
    "division": Division,
    "comet": Comet,
    "acgc": ACGC,
    "fixed": Fixed,
}


def register_method(name: str, method: type[Method]) -> None:
    """Give `compress(method=name)` and the command line a method of yours.

    method  a frozen dataclass that inherits from `Method`; its fields are its options

    A method of another package can be found without an import by the entry point
    `actzip.methods`, under its name.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"a method's name is one word, as in method='mine', got {name!r}")
    if not (isinstance(method, type) and issubclass(method, Method) and is_dataclass(method)):
        raise TypeError(
            f"register_method({name!r}, …) takes a dataclass that inherits from actzip.Method, got "
            f"{method!r}"
        )
    known = METHODS.get(name)
    if known is not None and known is not method and known.__module__.startswith("actzip."):
        raise ValueError(f"{name!r} is {known.__name__}, a method of actzip; take another name")
    METHODS[name] = method


def method_class(name: object) -> type[Method] | None:
    """The method class of this name, from an installed package if it is none of ours."""
    if isinstance(name, str) and name not in METHODS:
        found = load("actzip.methods", name)
        if isinstance(found, type) and issubclass(found, Method):
            register_method(name, found)
    return METHODS.get(name) if isinstance(name, str) else None


def resolve(method: str | Method, options: dict[str, Any]) -> Method:
    """The method for a name and its options, or the method object as it is."""
    if isinstance(method, Method):
        if options:
            raise ValueError(
                f"{', '.join(options)}: options belong to a method's name; give them to "
                f"{type(method).__name__}(…) instead"
            )
        return method
    kind = method_class(method)
    if kind is None:
        names = ", ".join(repr(name) for name in METHODS)
        raise ValueError(f"no method {method!r}; there are {names}, or pass a method object")
    allowed = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    unknown = [name for name in options if name not in allowed]
    if unknown:
        takes = ", ".join(allowed) or "no options"
        raise ValueError(f"{method!r} has no option {', '.join(unknown)}; it takes {takes}")
    return kind(**options)
