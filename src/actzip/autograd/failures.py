"""Errors of ours inside a user's step: the tensor stays as it is, one warning, the step goes on."""

from __future__ import annotations

import os

from actzip.codecs.verified import BrokenBoundError
from actzip.warning import warn


def is_debugging() -> bool:
    """Whether ACTZIP_DEBUG=1 asks for errors to be raised where they happen."""
    return os.environ.get("ACTZIP_DEBUG", "0") not in ("", "0")


class Failures:
    """The errors of one session."""

    def __init__(self) -> None:
        self.count = 0

    def contain(self, error: Exception) -> str:
        """Count the error and warn of the first; gives back what a report says of it.

        "" means that the error was asked for, and the caller raises it again: all errors with
        ACTZIP_DEBUG=1, a broken bound under `verify=True`, and warnings that the user's filters
        make errors. (To raise it here would tie the error to its own trace, and tensors with it.)
        """
        if is_debugging() or isinstance(error, (BrokenBoundError, Warning)):
            return ""
        self.count += 1
        what = f"{type(error).__name__}: {error}"
        if self.count == 1:
            warn(
                f"actzip failed inside this step ({what}); what it was looking at stays as it is "
                "and training goes on. Please report it with the trace that ACTZIP_DEBUG=1 gives"
            )
        return f"actzip failed here ({what}): kept exactly"
