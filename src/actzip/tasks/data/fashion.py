"""Fashion-MNIST: 60 000 + 10 000 grey pictures of clothes, 28×28, in ten classes."""

from __future__ import annotations

import gzip
import math
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from actzip.tasks.data import cache, packages
from actzip.tasks.data.contract import DataError

CLASSES = (
    *("t-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
_FILES = {
    "train_x": "train-images-idx3-ubyte.gz",
    "train_y": "train-labels-idx1-ubyte.gz",
    "test_x": "t10k-images-idx3-ubyte.gz",
    "test_y": "t10k-labels-idx1-ubyte.gz",
}


def read() -> dict[str, Tensor]:
    """`train_x`, `train_y`, `test_x`, `test_y`; the pictures as uint8 (n, 1, 28, 28)."""
    return cache.tensors("fashion-mnist-1", _convert)


def _convert() -> dict[str, Tensor]:
    package = packages.obtain(packages.FASHION_MNIST)
    if shutil.which("dpkg-deb") is None:
        raise DataError(f"{package} is there, but no dpkg-deb to unpack it; install dpkg")
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["dpkg-deb", "-x", package, scratch], check=True)
        share = Path(scratch) / "usr" / "share" / "datasets" / "fashion-mnist"
        made = {key: _idx(share / file) for key, file in _FILES.items()}
    for key, value in made.items():
        made[key] = value.unsqueeze(1) if key.endswith("x") else value.long()
    return made


def _idx(path: Path) -> Tensor:
    """An idx file: two zero bytes, type 8 (uint8), the number of sizes, the sizes, the bytes."""
    content = bytearray(gzip.decompress(path.read_bytes()))
    rank = content[3]
    sizes = [int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(rank)]
    start = 4 + 4 * rank
    if content[:3] != b"\0\0\x08" or len(content) - start != math.prod(sizes):
        raise DataError(f"{path.name} is not an idx file of bytes; fetch Fashion-MNIST again")
    return torch.frombuffer(content, dtype=torch.uint8, offset=start).view(sizes)
