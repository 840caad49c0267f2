"""Every test starts from the same random state and leaves no mode behind."""

from collections.abc import Iterator

import pytest
import torch
from torch.overrides import _get_current_function_mode


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ACTZIP_DEBUG", "1")  # errors of ours are raised, not contained
    torch.manual_seed(0)
    yield
    assert _get_current_function_mode() is None, "a test left a function mode on the stack"
