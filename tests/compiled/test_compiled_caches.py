"""Caches on disk give a graph to the method that it was compiled for, and to no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("disk_caches.py")
#: Of the squared gradient; plain is off by rounding.
ERRORS = {"plain": (0, 1e-9), "4": (1e-6, 1e-2), "2": (1e-3, 1)}


def _process(folder: Path, width: int, *methods: str) -> dict[str, dict[str, float]]:
    caches = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "1", "TORCHINDUCTOR_AUTOGRAD_CACHE": "1"}
    env = {**os.environ, **caches, "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    ask = [sys.executable, str(RUN), str(width), *methods]
    ran = subprocess.run(ask, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = dict(zip(methods, map(json.loads, ran.stdout.splitlines()), strict=True))
    for method, numbers in found.items():
        low, high = ERRORS[method]
        assert low <= numbers["error"] <= high, method
    return found


def test_processes_share_graphs_of_the_same_method_alone(tmp_path: Path) -> None:
    first = _process(tmp_path, 64, "4", "plain", "2")
    saved = {method: numbers["saved"] for method, numbers in first.items()}
    assert saved["2"] < 0.7 * saved["4"] < 0.2 * saved["plain"]
    assert all((n["hits"], n["misses"]) == (0, 1) for n in first.values())
    second = _process(tmp_path, 64, "2", "4", "plain")
    assert {method: numbers["saved"] for method, numbers in second.items()} == saved
    assert all((n["hits"], n["misses"]) == (1, 0) for n in second.values())


@pytest.mark.parametrize("order", [("plain", "2"), ("2", "plain")], ids=" then ".join)
def test_a_fresh_process_does_not_get_what_another_method_left(
    order: tuple[str, str], tmp_path: Path
) -> None:
    """The second one has a cache in which the same model is, compiled for the first."""
    first, second = (_process(tmp_path, 32, method)[method] for method in order)
    assert (second["hits"], second["misses"]) == (0, 1)
    packed, plain = (first, second) if order[0] == "2" else (second, first)
    assert packed["saved"] < 0.5 * plain["saved"]
    (again,) = _process(tmp_path, 32, order[0]).values()
    assert (again["hits"], again["saved"]) == (1, first["saved"])
