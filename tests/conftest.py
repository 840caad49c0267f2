"""Every test starts from the same random state and leaves no mode behind."""

from collections.abc import Iterator

import pytest
import torch
from torch.overrides import _get_current_function_mode


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    assert _get_current_function_mode() is None, "a test left a function mode on the stack"
