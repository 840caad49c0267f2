"""CIFAR-10 and Fashion-MNIST where people have them already: torchvision's folders, Hugging Face's
cache, or a folder that is given."""

from __future__ import annotations

import glob
import gzip
import io
import math
import os
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from actzip.tasks.data.contract import DataError
from actzip.tasks.data.problems import DataWarning

Parts = dict[str, Tensor]

CIFAR10, FASHION_MNIST = "cifar10", "fashion-mnist"
_BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
IDX = {
    "train_x": "train-images-idx3-ubyte",
    "train_y": "train-labels-idx1-ubyte",
    "test_x": "t10k-images-idx3-ubyte",
    "test_y": "t10k-labels-idx1-ubyte",
}
_BELOW = ("", "cifar-10-batches-py", "FashionMNIST/raw", "fashion-mnist", "fashion_mnist")
_HUB = {CIFAR10: "datasets--*cifar10", FASHION_MNIST: "datasets--*fashion_mnist"}
#: What a pickled batch of CIFAR-10 is made of; nothing else in a pickle is called.
_ALLOWED = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("_codecs", "encode"),
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
}


def places() -> Iterator[Path]:
    """Folders that data sets are commonly kept in, the user's own choice first."""
    for folder in filter(None, os.environ.get("ACTZIP_DATA", "").split(os.pathsep)):
        yield Path(folder).expanduser()
    for base in (Path.cwd(), Path.home()):
        for name in ("data", "datasets"):
            yield base / name


def find(name: str) -> Parts | None:
    """The data set of that name from one of these places, or from the hub's cache."""
    for read in (*_folders(name, places()), *_cached(name)):
        try:
            return read()
        except (DataError, OSError, ValueError) as error:
            warnings.warn(f"{name}: passed over: {error}", DataWarning, stacklevel=2)
    return None


def at(path: Path) -> tuple[str, Parts] | None:
    """The data set that a folder holds, with its name; None if it is neither of the two."""
    for name in (CIFAR10, FASHION_MNIST):
        for read in _folders(name, [path]):
            return name, read()
    return None


def holds(path: Path) -> bool:
    """Whether a folder holds one of the two."""
    return any(True for name in (CIFAR10, FASHION_MNIST) for _ in _folders(name, [path]))


def _folders(name: str, roots: Sequence[Path] | Iterator[Path]) -> Iterator[Callable[[], Parts]]:
    for root in roots:
        for below in _BELOW:
            folder = root / below
            if name == CIFAR10 and (folder / "data_batch_1").is_file():
                yield partial(cifar_batches, folder)
            # the digits of MNIST come in files of the same names
            fashion = name == FASHION_MNIST and "fashion" in str(folder.absolute()).lower()
            if fashion and _idx_file(folder, IDX["train_x"]) is not None:
                yield partial(idx_files, folder)


def _cached(name: str) -> Iterator[Callable[[], Parts]]:
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    hub = os.environ.get("HF_HUB_CACHE") or Path(home) / "hub"
    for snapshot in sorted(glob.glob(f"{hub}/{_HUB[name]}/snapshots/*")):
        files = {
            part: sorted(Path(snapshot).glob(f"**/{part}-*.parquet")) for part in ("train", "test")
        }
        if all(files.values()):
            yield partial(_parquets, files)


# -- torchvision's CIFAR-10 --------------------------------------------------------------------


class _Pickle(pickle.Unpickler):
    """Reads arrays and plain containers; a pickle that asks for anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def cifar_batches(folder: Path) -> Parts:
    """`data_batch_1` … `test_batch`, as the authors of CIFAR-10 published them."""
    made: Parts = {}
    for part, names in _BATCHES.items():
        batches = [_batch(folder / name) for name in names]
        made[f"{part}_x"] = torch.cat([pictures for pictures, _ in batches])
        made[f"{part}_y"] = torch.cat([labels for _, labels in batches])
    return made


def _batch(file: Path) -> tuple[Tensor, Tensor]:
    try:
        with file.open("rb") as opened:
            found = _Pickle(opened, encoding="bytes").load()
        pictures = torch.from_numpy(np.array(found[b"data"], dtype=np.uint8))
        labels = torch.tensor(found[b"labels"], dtype=torch.int64)
        return pictures.view(len(labels), 3, 32, 32), labels
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, RuntimeError) as error:
        raise DataError(f"{file} is no batch of CIFAR-10: {error}") from error


# -- idx files ---------------------------------------------------------------------------------


def idx_files(folder: Path) -> Parts:
    """The four files of Fashion-MNIST, packed by gzip or not."""
    made: Parts = {}
    for key, name in IDX.items():
        file = _idx_file(folder, name)
        if file is None:
            raise DataError(f"{folder} has no {name}; the four files of Fashion-MNIST are needed")
        found = idx(file)
        made[key] = found.unsqueeze(1) if key.endswith("x") else found.long()
    return made


def idx(path: Path) -> Tensor:
    """An idx file: two zero bytes, type 8 (uint8), the number of sizes, the sizes, the bytes."""
    content = bytearray(path.read_bytes())
    if path.suffix == ".gz":
        content = bytearray(gzip.decompress(content))
    rank = content[3] if len(content) > 4 else 0
    sizes = [int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(rank)]
    start = 4 + 4 * rank
    if content[:3] != b"\0\0\x08" or len(content) - start != math.prod(sizes):
        raise DataError(f"{path.name} is not an idx file of bytes; fetch Fashion-MNIST again")
    return torch.frombuffer(content, dtype=torch.uint8, offset=start).view(sizes)


def _idx_file(folder: Path, name: str) -> Path | None:
    files = (folder / name, folder / f"{name}.gz")
    return next((file for file in files if file.is_file()), None)


# -- Hugging Face's cache ----------------------------------------------------------------------


def _parquets(files: dict[str, list[Path]]) -> Parts:
    """A column of encoded pictures and one of labels."""
    try:
        from PIL import Image
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise DataError(f"its pictures are Parquet, which needs {error.name}") from None
    made: Parts = {}
    for part, paths in files.items():
        pictures, labels = [], []
        for path in paths:
            table = parquet.read_table(path)
            columns = {n: table.column(n).to_pylist() for n in table.column_names}
            shown = next(columns[n] for n in ("img", "image") if n in columns)
            for each in shown:
                with Image.open(io.BytesIO(each["bytes"])) as picture:
                    pictures.append(torch.from_numpy(np.array(picture)))
            labels += columns["label"]
        stacked = torch.stack(pictures)
        stacked = stacked.unsqueeze(1) if stacked.dim() == 3 else stacked.permute(0, 3, 1, 2)
        made[f"{part}_x"], made[f"{part}_y"] = stacked.contiguous(), torch.tensor(labels)
    return made
