"""Which of the processes that torchrun started on this machine speaks for all of them."""

from __future__ import annotations

import os


def is_first_here() -> bool:
    """Whether this process tells what all of them find: what is read, and what is refused."""
    return os.environ.get("LOCAL_RANK", "0") == "0"
