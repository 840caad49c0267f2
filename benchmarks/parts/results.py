"""Results as files that say of which code and machine they are."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from parts.machine import about

FOLDER = Path(__file__).parent.parent / "results"


def write(path: Path, values: Mapping[str, Any]) -> None:
    """Write them as JSON, with what a reader needs to know on top, unless runs in it say that of
    themselves; a crash leaves the old file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    said = {} if any(sources(values)) else {"about": about()}
    text = json.dumps({**said, **values}, indent=1, ensure_ascii=False)
    fresh.write_text(text + "\n")
    fresh.replace(path)


def sources(values: Any) -> Iterator[dict[str, Any]]:
    """Each `about` in a result: one of the whole file, or one of each of its runs."""
    if isinstance(values, Mapping):
        if isinstance(values.get("about"), dict):
            yield values["about"]
            return
        values = list(values.values())
    if isinstance(values, list):
        for value in values:
            yield from sources(value)


def changed_lines(old: str, new: str) -> int | None:
    """How many lines of src/ differ between two commits; None where one is not known here."""
    command = ["git", "diff", "--numstat", old.rstrip("+"), new, "--", "src"]
    done = subprocess.run(command, cwd=FOLDER.parent.parent, capture_output=True, text=True)
    if done.returncode:
        return None
    counts = [line.split("\t")[:2] for line in done.stdout.splitlines()]
    return sum(int(count) for pair in counts for count in pair if count != "-")
