"""What a reader needs to know of a machine and a tree to compare figures with their own."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from actzip.kernels import library


def about() -> dict[str, Any]:
    """Date, processor, versions, instruction set, threads, and the commit (`+`: with changes)."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "cpu": processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "instructions": library.ISA[library.isa_level()],
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "commit": commit(),
    }


def processor() -> str:
    """The model's name as the system tells it."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str:
    """The tree that was measured; empty outside of a repository."""
    here = Path(__file__).parent

    def git(*args: str) -> str:
        done = subprocess.run(["git", *args], cwd=here, capture_output=True, text=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", "../../src")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
