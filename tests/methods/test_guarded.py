"""A guarded method asks of its session what the method inside asks."""

from __future__ import annotations

import pytest

from actzip import ActNN
from actzip.methods import Guarded


@pytest.mark.parametrize(
    ("level", "slice_bytes", "swap"),
    [("L3", None, False), ("L3.1", 16 << 20, False), ("L4", None, True), ("L5", None, True)],
)
def test_what_a_method_asks_for_is_asked_for_under_guard(
    level: str, slice_bytes: int | None, swap: bool
) -> None:
    for policy in (ActNN(level=level).start(None), Guarded(ActNN(level=level)).start(None)):
        assert (policy.slice_bytes, policy.swap) == (slice_bytes, swap)
