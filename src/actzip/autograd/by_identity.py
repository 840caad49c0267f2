"""A weak dictionary that never asks its keys: two are one if they are the same object.

A module may define equality as it likes, by a comparison that raises or that gives a tensor; a
WeakKeyDictionary asks for it at every lookup, and for a hash.
"""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

_Object = TypeVar("_Object")
_Value = TypeVar("_Value")


class ByIdentity(Generic[_Object, _Value]):
    """Values by the objects they belong to, as long as those are there."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[_Object], _Value]] = {}

    def get(self, key: _Object) -> _Value | None:
        found = self._entries.get(id(key))
        # the address may be used again before the one that had it is seen to be gone
        return None if found is None or found[0]() is not key else found[1]

    def __contains__(self, key: _Object) -> bool:
        found = self._entries.get(id(key))
        return found is not None and found[0]() is key

    def __setitem__(self, key: _Object, value: _Value) -> None:
        number, entries = id(key), self._entries

        def gone(ref: weakref.ref[_Object]) -> None:
            if number in entries and entries[number][0] is ref:
                del entries[number]

        entries[number] = weakref.ref(key, gone), value

    def __delitem__(self, key: _Object) -> None:
        if key not in self:
            raise KeyError("no such object")
        del self._entries[id(key)]

    def __len__(self) -> int:
        return len(self._entries)
