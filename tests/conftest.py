"""Every test starts from the same random state and leaves no mode behind."""

import os
from collections.abc import Iterator

# Cores are shared out between the processes of the suite, and those that tests start: two pools of
# threads on the same cores wait for each other in every op. Before torch is imported.
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    _CORES = (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, _CORES)))

import pytest
import torch
from torch.overrides import _get_current_function_mode


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ACTZIP_DEBUG", "1")  # errors of ours are raised, not contained
    torch.manual_seed(0)
    yield
    assert _get_current_function_mode() is None, "a test left a function mode on the stack"
