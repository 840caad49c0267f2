"""Whole training steps on Triton's kernels: no read by the host in those that do not look."""

from __future__ import annotations

from collections import Counter

import pytest
from agreement import QUIET

from actzip import kernels
from stepping import MODELS, like_a_gpu, reads

pytestmark = QUIET


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize(
    ("method", "passes"),
    [("fixed", 3), ("division", 3), ("lossless", 3), ("actnn", 7), ("comet", 9), ("acgc", 17)],
)
def test_no_read_in_an_ordinary_step(
    model: str, method: str, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def before(left: int) -> None:
        if left == passes:  # the C++ library learns as fast as it does everything
            monkeypatch.setattr(kernels, "FORCED", None)
        if left == 2:
            monkeypatch.setattr(kernels, "FORCED", "triton")
            like_a_gpu(monkeypatch)

    found = reads(model, method, passes, before)
    # a CPU tensor without a producer may be an array's: its values are compared
    found.pop("autograd/stored.py: holds", None)
    assert found == Counter()
    assert kernels.backend_name("cpu") == "triton"
