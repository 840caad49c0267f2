"""Names of modules for people: the part that all have in common is cut, equal layers are one.

`layers.0.mlp` … `layers.11.mlp` become `layers.{0-11}.mlp`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

#: A module's path, part by part; numbers are sets, so that several paths can be one.
_Path = tuple[str | frozenset[int], ...]


def prefix(paths: Iterable[str]) -> str:
    """The names that all paths begin with; "" if there are none.

    Each path keeps a name beyond it, and a number the name before it: `layers.0`.
    """
    split = [path.split(".") for path in paths if path]
    if len(split) < 2:
        return ""
    most = min(len(parts) for parts in split) - 1
    same = 0
    while same < most and len({parts[same] for parts in split}) == 1:
        same += 1
    while same and any(parts[same].isdecimal() for parts in split):
        same -= 1
    return ".".join(split[0][:same])


def fold(items: Sequence[tuple[str, T]], kind: Callable[[T], Hashable]) -> dict[str, list[T]]:
    """Items by path; those whose paths differ in numbers alone, and that are of one kind, together.

    In the order in which each first appears.
    """
    groups: dict[_Path, list[T]] = {}
    for name, item in items:
        groups.setdefault(_parse(name), []).append(item)
    kinds = {path: tuple(kind(item) for item in found) for path, found in groups.items()}
    deepest = max(map(len, groups), default=0)
    for at in reversed(range(deepest)):
        merged: dict[Hashable, list[_Path]] = {}
        for path in groups:
            rest = (path[:at], path[at + 1 :]) if at < len(path) and _is_number(path[at]) else path
            merged.setdefault((rest, kinds[path]), []).append(path)
        groups, kinds = _joined(groups, kinds, merged.values(), at)
    return {_written(path): found for path, found in groups.items()}


def _joined(
    groups: dict[_Path, list[T]],
    kinds: dict[_Path, tuple[Hashable, ...]],
    merged: Iterable[list[_Path]],
    at: int,
) -> tuple[dict[_Path, list[T]], dict[_Path, tuple[Hashable, ...]]]:
    found: dict[_Path, list[T]] = {}
    whose: dict[_Path, tuple[Hashable, ...]] = {}
    for paths in merged:
        first = path = paths[0]
        if len(paths) > 1:
            numbers = frozenset(n for each in paths for n in each[at] if isinstance(n, int))
            path = (*first[:at], numbers, *first[at + 1 :])
        found[path] = [item for each in paths for item in groups[each]]
        whose[path] = kinds[first]
    return found, whose


def _parse(path: str) -> _Path:
    return tuple(frozenset([int(p)]) if p.isdecimal() else p for p in path.split("."))


def _is_number(part: str | frozenset[int]) -> bool:
    return isinstance(part, frozenset)


def _written(path: _Path) -> str:
    return ".".join(part if isinstance(part, str) else _numbers(sorted(part)) for part in path)


def _numbers(numbers: list[int]) -> str:
    """0, {0-11}, {0,3}, {0-2,5}."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    said = ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
    return said if len(numbers) == 1 else f"{{{said}}}"


def unnumbered(name: str) -> str:
    """A site's name with a star for each number in its path, the same for equal layers."""
    module, colon, rest = name.partition(":")
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", module) + colon + rest
