"""Fashion-MNIST: 60 000 + 10 000 grey pictures of clothes, 28×28, in ten classes."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from torch import Tensor

from actzip.tasks.data import cache, installed, packages
from actzip.tasks.data.contract import DataError

CLASSES = (
    *("t-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)


def read() -> dict[str, Tensor]:
    """`train_x`, `train_y`, `test_x`, `test_y`; the pictures as uint8 (n, 1, 28, 28)."""
    return cache.tensors("fashion-mnist-1", _convert)


def _convert() -> dict[str, Tensor]:
    return installed.find(installed.FASHION_MNIST) or _package()


def _package() -> dict[str, Tensor]:
    package = packages.obtain(packages.FASHION_MNIST)
    if shutil.which("dpkg-deb") is None:
        raise DataError(f"{package} is there, but no dpkg-deb to unpack it; install dpkg")
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["dpkg-deb", "-x", package, scratch], check=True)
        share = Path(scratch) / "usr" / "share" / "datasets" / "fashion-mnist"
        return installed.idx_files(share)
