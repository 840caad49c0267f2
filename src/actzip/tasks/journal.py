"""The folder of a run: metrics as JSON lines, the checkpoint, the result."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

CHECKPOINT = "checkpoint.pt"
METRICS = "metrics.jsonl"
RESULT = "result.json"
_VERSION = 1


class Journal:
    """Writes what happens into `folder`; without one it writes nothing."""

    def __init__(self, folder: Path | None, checkpoint: Path | None = None) -> None:
        self.folder = folder
        self.checkpoint = checkpoint or (None if folder is None else folder / CHECKPOINT)

    def start(self, step: int) -> None:
        """Begin at `step`: later lines, of a run that went on after its checkpoint, are dropped."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / METRICS
        lines = path.read_text().splitlines() if path.exists() and step else []
        kept = [line for line in lines if json.loads(line)["step"] <= step]
        replace_text(path, "".join(line + "\n" for line in kept))

    def line(self, **values: Any) -> None:
        if self.folder is not None:
            with (self.folder / METRICS).open("a") as file:
                file.write(json.dumps(values) + "\n")

    def result(self, values: dict[str, Any]) -> None:
        if self.folder is not None:
            replace_text(self.folder / RESULT, json.dumps(values, indent=1) + "\n")

    def save(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint; a crash leaves the old one whole."""
        if self.checkpoint is None:
            return
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.checkpoint.with_name(self.checkpoint.name + ".new")
        torch.save({"version": _VERSION, **state}, fresh)
        os.replace(fresh, self.checkpoint)


def read_result(folder: Path) -> dict[str, Any] | None:
    """What a finished run left in its folder; None where no run has finished."""
    path = folder / RESULT
    if not path.exists():
        return None
    try:
        values: dict[str, Any] = json.loads(path.read_text())
        return {**values}  # a list is no result
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is no result of actzip: {error}; remove that folder") from error


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The state in a checkpoint, or in the folder of a run; it can hold data only, no code."""
    file = path / CHECKPOINT if path.is_dir() else path
    if not file.is_file():
        raise ValueError(
            f"no checkpoint at {path}; --resume takes a run's folder or its {CHECKPOINT}"
        )
    try:
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(f"{file} is no checkpoint of actzip train: {error}") from error
    if not isinstance(state, dict) or state.get("version") != _VERSION:
        raise ValueError(f"{file} is no checkpoint that this actzip reads (version {_VERSION})")
    return state


def replace_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text)
    os.replace(fresh, path)
