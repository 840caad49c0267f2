"""A picture and where the boxes of its objects are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from actzip.tasks.data.problems import Problems


@dataclass(frozen=True)
class Object:
    """What is in a picture, and where."""

    name: str
    box: tuple[float, float, float, float]  #: 0-based pixels, right and bottom outside


@dataclass(frozen=True)
class Item:
    """A picture, and the file that tells what is in it."""

    picture: Path
    source: Path
    #: objects(width, height, problems): what the file says; a DataError when it cannot be read
    objects: Callable[[int, int, Problems], list[Object]]
