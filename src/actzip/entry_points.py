"""Codecs and methods of other packages, found by their entry points when a name is not known."""

from __future__ import annotations

from importlib.metadata import entry_points


def load(group: str, name: str) -> object | None:
    """What a package offers under this name; None when no installed package does.

    A codec is in the group `actzip.codecs`, under the name of its class, a method in
    `actzip.methods`, under the name that `compress(method=…)` takes.
    """
    for point in entry_points(group=group, name=name):
        loaded: object = point.load()
        return loaded
    return None
