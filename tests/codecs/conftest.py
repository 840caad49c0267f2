"""`backend`: the test runs on the C++ library and on its plain-PyTorch twin."""

from __future__ import annotations

import pytest

from actzip import kernels


@pytest.fixture(params=["native", "reference"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("actzip.kernels.FORCED", request.param)
    assert kernels.backend_name() == request.param
    return str(request.param)
