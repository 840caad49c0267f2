"""Dynamo's own imports use names that torch has deprecated; each test begins with empty caches."""

from collections.abc import Iterator

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/compiled" in item.path.as_posix():
            for kind in ("DeprecationWarning", "FutureWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))
            grad = "ignore:The .grad attribute:UserWarning"  # Dynamo looks at every input
            item.add_marker(pytest.mark.filterwarnings(grad))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()
