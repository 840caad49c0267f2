"""The modules check_*.py, in processes in which Triton interprets its kernels on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from actzip import kernels
from actzip.kernels import triton

HERE = Path(__file__).parent
MODULES = sorted(HERE.glob("check_*.py"))
PROCESSES = 4  #: a process takes three seconds to begin

needs_triton = pytest.mark.skipif(
    not triton.available(), reason="Triton is not installed: pip install 'actzip[triton]'"
)


@needs_triton
@pytest.mark.parametrize("part", range(PROCESSES))
def test_kernels_equal_their_twins(part: int) -> None:
    modules = MODULES[part::PROCESSES]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *modules],
        env={**os.environ, "TRITON_INTERPRET": "1", "ACTZIP_KERNELS": "triton"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_every_form_has_a_check() -> None:
    checked = {path.stem.removeprefix("check_") for path in HERE.glob("check_*.py")}
    assert checked >= triton.FORMS


def test_without_a_gpu_triton_is_not_imported() -> None:
    code = (
        "import sys, torch; from actzip.codecs import Group; Group().encode(torch.randn(9)); "
        "print('triton' in sys.modules)"
    )
    env = {key: value for key, value in os.environ.items() if key != "ACTZIP_KERNELS"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("asked", [None, "triton"])
def test_a_gpu_gets_triton_where_it_is_installed(
    asked: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "FORCED", asked)
    monkeypatch.setattr(triton, "available", lambda: True)
    assert kernels.backend_name("cuda:1") == "triton"
    assert kernels.backend_name("mps") == "reference"
    monkeypatch.setattr(triton, "available", lambda: False)
    assert kernels.backend_name("cuda") == "reference"
    monkeypatch.setattr(kernels, "FORCED", "reference")
    assert kernels.backend_name("cuda") == "reference"


@needs_triton
def test_every_form_is_tried_before_it_is_used() -> None:
    from actzip.kernels.triton import trial

    assert set(trial.CASES) == triton.FORMS
