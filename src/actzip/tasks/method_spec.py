"""Methods and options as people write them: ``actnn:bits=2,rounding=dither``."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """A method's name and its options; `label` turned around."""
    name, _, rest = text.partition(":")
    return name, pairs(filter(None, rest.split(",")))


def pairs(texts: Iterable[str]) -> dict[str, Any]:
    """``name=value`` each; a value is a Python literal, or else a word as it is."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ValueError(f"an option is written name=value, got {text!r}")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def label(method: str, options: Mapping[str, Any]) -> str:
    """One word for a method with its options."""
    written = ",".join(f"{name}={value}" for name, value in options.items())
    return f"{method}:{written}" if written else method
