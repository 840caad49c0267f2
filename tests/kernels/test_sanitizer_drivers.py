"""The programs that run the kernels under sanitizers are built by hand: that they still compile."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from actzip import kernels

NATIVE = Path(__file__).parents[1] / "native"
SOURCES = Path(kernels.__file__).parent / "csrc"


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_every_driver_and_target_fits_the_entries() -> None:
    files = sorted(path.name for path in NATIVE.glob("*.cpp"))
    assert {"threads_driver.cpp", "random_driver.cpp", "target_dithered.cpp"} <= set(files)
    flags = ["-std=c++17", f"-I{SOURCES}", "-fsyntax-only", "-DTARGET=fuzz_group"]
    done = subprocess.run(
        ["g++", *flags, *files], cwd=NATIVE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_target_is_called_by_both_drivers() -> None:
    makefile = (NATIVE / "Makefile").read_text()
    targets = next(line for line in makefile.splitlines() if line.startswith("TARGETS :="))
    for driver in ("random_driver.cpp", "threads_driver.cpp"):
        text = (NATIVE / driver).read_text()
        for name in targets.split()[2:]:
            found = re.findall(rf"\bfuzz_{name}\b", text)
            assert len(found) == 2, (driver, name)  # declared, and in its table
