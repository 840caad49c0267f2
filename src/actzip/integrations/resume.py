"""What a resumed run is told when a session cannot go on."""

from __future__ import annotations

from actzip.warning import warn


def warn_of_lost_state(why: str) -> None:
    warn(
        f"actzip goes on from nothing, as at the beginning of a training: {why}. The run will not "
        "be the one that was interrupted, bit for bit"
    )
