"""What is wrong with single examples: they are left out, counted and listed; strict refuses."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

from actzip.tasks.data.contract import DataError

_SHOWN = 5  #: of a longer list, in a message


class DataWarning(UserWarning):
    """Examples that were left out of a data set."""


@dataclass
class Problems:
    """Collects what is wrong while a data set is read."""

    found: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.found.append(text)

    def end(self, name: str, strict: bool) -> tuple[str, ...]:
        """Warn of all at once, or refuse the set; the list."""
        if not self.found:
            return ()
        if strict:
            raise DataError(f"{name}: {self.said()}; without --strict these are left out")
        warnings.warn(f"{name}: left out: {self.said()}", DataWarning, stacklevel=4)
        return tuple(self.found)

    def said(self) -> str:
        """How many there are, and the first of them."""
        if not self.found:
            return "nothing is wrong with single examples"
        count = len(self.found)
        more = "" if count <= _SHOWN else f"; and {count - _SHOWN} more (actzip data lists them)"
        noun = "problem" if count == 1 else "problems"
        return f"{count} {noun}: " + "; ".join(self.found[:_SHOWN]) + more
