"""Trainers of transformers in two processes that torchrun starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("accelerate", reason="the Trainer of transformers needs accelerate")


def test_two_processes_resume_bit_for_bit_and_lose_their_state_together(tmp_path: Path) -> None:
    script = Path(__file__).with_name("two_process_trainer.py")
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*run, str(script), str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "rank 0 is done" in done.stdout
    assert "rank 1 is done" in done.stdout
