"""Every example runs as it stands."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
NEEDS = {"accelerate_two_processes": "accelerate", "fabric": "lightning"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_the_example_runs_and_prints_something(path: Path) -> None:
    if path.stem in NEEDS and importlib.util.find_spec(NEEDS[path.stem]) is None:
        pytest.skip(f"{NEEDS[path.stem]} is not installed")
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Group(bits=" in done.stdout
