"""The codec classes by name, and their short repr."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from actzip.codecs.base import Codec
from actzip.entry_points import load

_C = TypeVar("_C", bound=type[Codec])
_REGISTERED: dict[str, type[Codec]] = {}


def register(codec: _C) -> _C:
    """Enrol a codec class: payloads find it by its name, the conformance kit puts it through.

    A codec of another package can be found without an import by the entry point
    `actzip.codecs`, under the name of its class.
    """
    if not (isinstance(codec, type) and issubclass(codec, Codec)):
        raise TypeError(f"register_codec takes a subclass of actzip.codecs.Codec, got {codec!r}")
    if not dataclasses.is_dataclass(codec):
        raise TypeError(
            f"{codec.__name__} must be a frozen dataclass: its fields are its configuration"
        )
    known = _REGISTERED.get(codec.__name__)
    if known is not None and known.__module__ != codec.__module__:
        raise ValueError(
            f"a codec {codec.__name__} is there already, of {known.__module__}; payloads are found "
            "by the name of their codec, so take another one"
        )
    _REGISTERED[codec.__name__] = codec
    codec.__repr__ = _repr  # type: ignore[assignment, method-assign]  # dataclass wrote one that names all fields
    return codec


def _repr(codec: Codec) -> str:
    """`_short`, worked out once; it goes with the codec, of which a step may have many new ones."""
    known = codec.__dict__
    if "_short" not in known:
        known["_short"] = _short(codec)
    return str(known["_short"])


def told(codec: Codec) -> tuple[str, tuple[str, float] | None]:
    """What a report says of a codec, its repr and its precision, worked out once."""
    known = codec.__dict__["_told"] = repr(codec), codec.precision()
    return known


def _short(codec: Codec) -> str:
    """The code that makes the codec: its first option, and those that are not the default."""
    said = []
    for i, field in enumerate(dataclasses.fields(codec)):
        value = getattr(codec, field.name)
        if not field.repr:
            continue
        if value != field.default or (i == 0 and value is not None):
            said.append(f"{field.name}={value!r}")
    return f"{type(codec).__name__}({', '.join(said)})"


def codec_class(name: str) -> type[Codec] | None:
    """The codec class of this name, from an installed package if it is none of ours."""
    if name not in _REGISTERED:
        found = load("actzip.codecs", name)
        if isinstance(found, type) and issubclass(found, Codec):
            register(found)
    return _REGISTERED.get(name)


def registered() -> dict[str, type[Codec]]:
    """All codec classes by name, in the order in which they were registered."""
    return dict(_REGISTERED)
