"""A run that is killed at any moment, again and again, ends as one that was left alone."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_data import tiny

from actzip.memory.fresh_process import call_fresh
from actzip.tasks.config import make
from actzip.tasks.engine import Loop
from actzip.tasks.run_folder import STATE, Journal, read_state

KILLS = 20


def _train(folder: Path) -> None:
    """The run in `folder`, from its saved state if there is one."""
    torch.set_num_threads(1)
    config = make("text", model="gru", sizes={"width": 8}, method="actnn", epochs=6, batch=16)
    loop = Loop(config, tiny("text"), Journal(folder))
    if (folder / STATE).exists():
        loop.load_state_dict(read_state(folder))
    loop.run()


def _life(folder: Path, seconds: float) -> bool:
    """Train in a process of its own and kill it after so many seconds; whether it came first."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _train(folder)
            code = 0
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            return True
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _lives(root: Path) -> int:
    """Runs until `KILLS` processes have been killed; how many runs came to their end."""
    _train(root / "whole")  # here, so that what it imports is there for all
    gc.freeze()
    began = time.monotonic()
    assert _life(root / "again", 60)
    whole = time.monotonic() - began
    chance, kills, runs = random.Random(0), 0, 0
    while kills < KILLS:
        runs += 1
        while not _life(root / str(runs), chance.uniform(0, whole)):
            kills += 1
    return runs


def _left(folder: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "losses": json.loads((folder / "result.json").read_text())["losses"],
        "lines": [(line["step"], line.get("loss"), line.get("test")) for line in lines],
        "files": sorted(path.name for path in folder.iterdir()),
    }


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_twenty_kills_at_random_moments_change_no_bit(tmp_path: Path) -> None:
    runs = call_fresh(_lives, tmp_path)
    expected = read_state(tmp_path / "whole")["trainer"]["model"]
    assert len(_left(tmp_path / "whole")["losses"]) == 18
    for number in range(1, runs + 1):
        folder = tmp_path / str(number)
        assert _left(folder) == _left(tmp_path / "whole")
        found = read_state(folder)["trainer"]["model"]
        assert all(torch.equal(found[name], expected[name]) for name in expected)
