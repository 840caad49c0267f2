"""Checks of options, for codecs and methods when they are built: what was asked, what came.

Each takes the object and the names of its fields: `whole(self, "interval", "history", least=1)`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn, TypeGuard


def whole(
    owner: object, *names: str, least: int, most: int | None = None, several: bool = False
) -> None:
    """Whole numbers of `least` to `most`; with `several` also tuples of these, not empty ones."""

    def is_good(v: object) -> bool:
        if not isinstance(v, int) or isinstance(v, bool):
            return False
        return least <= v and (most is None or v <= most)

    bounds = f"at least {least}" if most is None else f"{least} to {most}"
    _numbers(owner, names, f"a whole number of {bounds}", is_good, several)


def positive(owner: object, *names: str, several: bool = False, advice: str = "") -> None:
    """Finite numbers above 0; with `several` also tuples of these, not empty ones."""

    def is_good(v: object) -> bool:
        return is_number(v) and 0 < v <= sys.float_info.max  # an int may be larger

    _numbers(owner, names, "a finite number above 0", is_good, several, advice)


def _numbers(
    owner: object,
    names: Iterable[str],
    asked: str,
    is_good: Callable[[object], bool],
    several: bool,
    advice: str = "",
) -> None:
    for name in names:
        value = getattr(owner, name)
        each = value if several and isinstance(value, tuple) else (value,)
        if not each or not all(map(is_good, each)):
            _refuse(owner, name, f"{asked}, or a tuple of these" if several else asked, advice)


def one_of(owner: object, name: str, allowed: Iterable[object]) -> None:
    allowed = tuple(allowed)
    value = getattr(owner, name)
    # 1.0 and True are no 1
    if isinstance(value, bool) or not any(
        isinstance(value, type(a)) and value == a for a in allowed
    ):
        two = " or ".join(map(repr, allowed))
        _refuse(owner, name, two if len(allowed) == 2 else f"one of {', '.join(map(str, allowed))}")


def flag(owner: object, *names: str) -> None:
    """True or False, and not a number that counts as one of them."""
    for name in names:
        if not isinstance(getattr(owner, name), bool):
            _refuse(owner, name, "True or False")


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def are_finite(values: Sequence[object]) -> TypeGuard[Sequence[int | float]]:
    """Whether all are finite numbers; made for thousands of them in every step."""
    if not set(map(type, values)) <= {int, float} and not all(map(is_number, values)):
        return False
    return all(map(math.isfinite, values))  # type: ignore[arg-type]


def _refuse(owner: object, name: str, asked: str, advice: str = "") -> NoReturn:
    said = f"{type(owner).__name__}({name}=…) is {asked}, got {getattr(owner, name)!r}"
    raise ValueError(f"{said}; {advice}" if advice else said)
