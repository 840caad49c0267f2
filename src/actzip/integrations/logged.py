"""What a session shows in a trainer's log, and whether it wants to be told the loss."""

from __future__ import annotations

from typing import TypeGuard

from actzip.api import Session
from actzip.methods import Guarded

_NAMES = {
    "saved_bytes": "saved_bytes",
    "ratio": "ratio",
    "noise_share": "noise",
    "peak_stored_bytes": "live_peak",
    "guard_level": "guard_level",
}


def logged(session: Session) -> dict[str, float]:
    """Flat numbers for a logger; each is there once it is known.

    actzip/saved_bytes  what is kept for backward, all passes of the last optimizer step together
    actzip/ratio        what PyTorch would have kept for them, divided by that
    actzip/noise        quantization variance / SGD variance of the gradients, as measured last
    actzip/live_peak    the most that was held at the end of a forward pass since training began
    actzip/guard_level  with guard=True: how often errors were halved
    """
    found = session.metrics()
    if not found["passes"]:
        return {}
    return {f"actzip/{name}": found[key] for key, name in _NAMES.items() if key in found}


def is_guarded(session: Session | None) -> TypeGuard[Session]:
    """Whether the session is to be told the loss, by `Session.watch`."""
    return session is not None and isinstance(session.method, Guarded)
