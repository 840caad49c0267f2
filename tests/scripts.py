"""Modules of benchmarks/, for tests: that folder is on the path only while they are loaded,
because some of them are named as folders of tests."""

import importlib
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def load(name: str) -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))
