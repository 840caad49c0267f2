"""What the processes of a resumed run tell each other, and the user when a session cannot go on."""

from __future__ import annotations

from typing import TypeVar

import torch.distributed as dist

from actzip.warning import warn

_T = TypeVar("_T")


def everywhere(value: _T) -> list[_T]:
    """The value of each process; a call that all of them make."""
    if not dist.is_available() or not dist.is_initialized():
        return [value]
    found = [value] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def warn_of_lost_state(why: str) -> None:
    warn(
        f"actzip goes on from nothing, as at the beginning of a training: {why}. The run will not "
        "be the one that was interrupted, bit for bit"
    )
