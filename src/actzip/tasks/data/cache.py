"""Where fetched data stays: a folder per data set, written once, whole or not at all."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from actzip.tasks.data.contract import DataError


def folder() -> Path:
    """`ACTZIP_CACHE`, or actzip's folder in the user cache of this platform."""
    if chosen := os.environ.get("ACTZIP_CACHE"):
        return Path(chosen).expanduser()
    return _user_cache() / "actzip"


def tensors(name: str, make: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors cached under `name`; when there are none, those of `make()`, now cached.

    They are read whole: pages of a mapped file that come in as training goes on would count
    as growth of the process.
    """
    place = folder() / name
    if not place.is_dir():
        _store(place, make())
    try:
        return {path.stem: torch.from_numpy(np.load(path)) for path in sorted(place.glob("*.npy"))}
    except (ValueError, OSError, EOFError) as error:
        raise DataError(
            f"the cached data in {place} cannot be read ({error}); "
            "remove that folder and it is made again"
        ) from error


def _store(place: Path, made: Mapping[str, Tensor]) -> None:
    """Write beside the place and rename: no reader ever meets half a data set."""
    place.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        for key, value in made.items():
            np.save(part / f"{key}.npy", value.numpy())
        part.chmod(0o755)  # mkdtemp makes it private; a cache may be shared
        part.rename(place)
    except OSError:
        if not place.is_dir():  # else another process was first: its data are as good as ours
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
