"""The folder of a run: metrics as JSON lines, the saved state, the result."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch

STATE = "state.pt"
METRICS = "metrics.jsonl"
RESULT = "result.json"
NEW = ".new"  #: ending of a file that is not whole yet; a kill may leave one, nothing reads it
_VERSION = 1
_PARTS = {"config", "trainer", "history", "shuffling", "augmenting"}


class Journal:
    """Writes what happens into `folder`; without one it writes nothing."""

    def __init__(self, folder: Path | None, state: Path | None = None) -> None:
        self.folder = folder
        self.file = state or (None if folder is None else folder / STATE)

    def start(self, step: int, state: Callable[[], dict[str, Any]]) -> None:
        """Begin at `step`: later lines, of a run that went on after it was saved, are dropped.

        A run that begins saves `state()` first: whenever it is killed, there is something to
        go on from, and a place that cannot be written says so before the first step.
        """
        if self.file is not None and not (step and self.file.exists()):
            self.save(state())
        if self.folder is None:
            return
        make_folder(self.folder)
        path = self.folder / METRICS
        lines = path.read_text("utf-8", "replace").splitlines() if path.exists() and step else []
        kept = [line for line in lines if 0 <= _step(line) <= step]
        replace_text(path, "".join(line + "\n" for line in kept))

    def line(self, **values: Any) -> None:
        if self.folder is not None:
            with (self.folder / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")

    def result(self, values: dict[str, Any]) -> None:
        if self.folder is not None:
            replace_text(self.folder / RESULT, json.dumps(values, indent=1) + "\n")

    def save(self, state: dict[str, Any]) -> None:
        """Replace the saved state; a crash, of the machine too, leaves the old or the new whole."""
        if self.file is None:
            return
        make_folder(self.file.parent)
        self._keep_lines()
        replace(self.file, lambda file: _dump({"version": _VERSION, **state}, file))

    def _keep_lines(self) -> None:
        """The lines up to a saved state are on the disk before it is."""
        if self.folder is not None and (self.folder / METRICS).exists():
            with (self.folder / METRICS).open("a") as file:
                os.fsync(file.fileno())


def _step(line: str) -> int:
    """The step of a line; -1 for one that a kill cut off."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, TypeError, KeyError):
        return -1


def _dump(state: dict[str, Any], file: IO[bytes]) -> None:
    try:
        torch.save(state, file)
    except RuntimeError as error:
        # its writer fails once more while it closes the file, which hides what had happened
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def read_result(folder: Path) -> dict[str, Any] | None:
    """What a finished run left in its folder; None where no run has finished."""
    path = folder / RESULT
    if not path.exists():
        return None
    try:
        values: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return {**values}  # a list is no result
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is no result of actzip: {error}; remove that folder") from error


def read_state(path: Path) -> dict[str, Any]:
    """What a run saved to go on from, a file or its folder; it can hold data only, no code."""
    file = path / STATE if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"no saved state at {path}; --resume takes a run's folder or its {STATE}")
    try:
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's own message is a page about pickles
        raise ValueError(
            f"{file} is no saved state of actzip train, or it is damaged "
            f"({type(error).__name__}); --resume takes a run's folder or its {STATE}"
        ) from error
    if not isinstance(state, dict) or not set(state) >= _PARTS:
        raise ValueError(
            f"{file} is no saved state of actzip train: it holds other things; --resume takes a "
            f"run's folder or its {STATE}"
        )
    if state.get("version") != _VERSION:
        raise ValueError(
            f"{file} is no saved state that this actzip reads: it has version "
            f"{state.get('version')}, wanted is {_VERSION}; go on with the actzip that wrote it"
        )
    return state


def make_folder(folder: Path) -> None:
    """Make a folder, or tell in a sentence why it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot(folder, error) from error


def check_place(folder: Path) -> None:
    """Raise ValueError when no file can be written into `folder`; folders it made are removed."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    make_folder(folder)
    probe = folder / f".actzip-{os.getpid()}{NEW}"
    try:
        replace(probe, lambda file: file.write(bytes(4096)))
    except OSError as error:
        raise _cannot(folder, error) from error
    finally:
        probe.unlink(missing_ok=True)
        for each in made:
            with contextlib.suppress(OSError):
                each.rmdir()


def _cannot(folder: Path, error: OSError) -> ValueError:
    reason = "it is no folder" if isinstance(error, FileExistsError) else error.strerror
    return ValueError(f"{folder} cannot be written ({reason}); name another place")


def replace(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file whole or not at all: it is on the disk before it takes the old one's place."""
    fresh = path.with_name(path.name + NEW)
    try:
        with fresh.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        with contextlib.suppress(OSError):  # a full disk shall not be left fuller
            fresh.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # elsewhere a folder cannot be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def replace_text(path: Path, text: str) -> None:
    """The same for a text."""
    replace(path, lambda file: file.write(text.encode()))
