"""CIFAR-10 and Fashion-MNIST are found where torchvision and Hugging Face leave them."""

from __future__ import annotations

import gzip
import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from actzip.tasks.data import (
    DataError,
    DataWarning,
    cifar,
    fashion,
    installed,
    load,
    packages,
    task_of,
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, an empty home, and no package to be had."""
    monkeypatch.setenv("ACTZIP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.chdir(tmp_path)

    def no_package(package: packages.Package) -> Path:
        raise DataError(f"asked for {package.name}")

    monkeypatch.setattr(packages, "obtain", no_package)
    return tmp_path


def _pictures(count: int, *shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(count).integers(0, 256, (count, *shape), dtype=np.uint8)


def _write_cifar(folder: Path) -> torch.Tensor:
    folder.mkdir(parents=True)
    pictures = _pictures(12, 3072)
    for at, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        batch = {b"data": pictures[2 * at : 2 * at + 2], b"labels": [at, at + 1]}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return torch.from_numpy(pictures).view(-1, 3, 32, 32)


def _idx(array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def _write_idx(folder: Path, packed: bool) -> torch.Tensor:
    folder.mkdir(parents=True)
    pictures, labels = _pictures(5, 28, 28), np.array([9, 0, 3, 2, 7], dtype=np.uint8)
    for name, part in (("train", slice(0, 3)), ("t10k", slice(3, 5))):
        for kind, values in (("images-idx3", pictures), ("labels-idx1", labels)):
            content = _idx(values[part])
            file = folder / f"{name}-{kind}-ubyte{'.gz' * packed}"
            file.write_bytes(gzip.compress(content) if packed else content)
    return torch.from_numpy(pictures).unsqueeze(1)


@pytest.mark.parametrize("root", ["data", "home/datasets"])
def test_cifar10_is_read_from_torchvisions_folder(home: Path, root: str) -> None:
    expected = _write_cifar(home / root / "cifar-10-batches-py")
    made = cifar.read()
    assert torch.equal(made["train_x"], expected[:10])
    assert torch.equal(made["test_x"], expected[10:])
    assert made["train_y"].tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert made["test_y"].tolist() == [5, 6]


@pytest.mark.parametrize("packed", [False, True])
def test_fashion_mnist_is_read_from_torchvisions_folder(
    home: Path, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTZIP_DATA", str(home / "mine"))
    expected = _write_idx(home / "mine" / "FashionMNIST" / "raw", packed)
    made = fashion.read()
    assert torch.equal(made["train_x"], expected[:3])
    assert torch.equal(made["test_x"], expected[3:])
    assert made["train_y"].tolist() == [9, 0, 3]
    assert made["test_y"].dtype == torch.int64


def test_the_digits_of_mnist_are_not_taken_for_clothes(home: Path) -> None:
    _write_idx(home / "data" / "MNIST" / "raw", packed=False)
    with pytest.raises(DataError, match="asked for dataset-fashion-mnist"):
        fashion.read()


def test_pictures_of_the_hubs_cache_are_read(home: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    pictures = _pictures(4, 32, 32, 3)
    folder = home / "hub" / "datasets--uoft-cs--cifar10" / "snapshots" / "ab12" / "plain_text"
    folder.mkdir(parents=True)
    for part, at in (("train", slice(0, 3)), ("test", slice(3, 4))):
        rows = []
        for picture in pictures[at]:
            out = io.BytesIO()
            Image.fromarray(picture).save(out, "png")
            rows.append({"bytes": out.getvalue(), "path": None})
        table = pa.table({"img": rows, "label": list(range(len(rows)))})
        parquet.write_table(table, folder / f"{part}-00000-of-00001.parquet")
    made = cifar.read()
    assert torch.equal(made["train_x"], torch.from_numpy(pictures[:3]).permute(0, 3, 1, 2))
    assert made["train_y"].tolist() == [0, 1, 2]
    assert made["test_x"].shape == (1, 3, 32, 32)


def test_a_folder_that_is_given_is_read_as_it_is(home: Path) -> None:
    folder = home / "somewhere" / "cifar-10-batches-py"
    expected = _write_cifar(folder)
    for path in (folder, folder.parent):
        assert task_of(str(path)) == "classify"
        data = load(str(path), "classify")
        assert tuple(data.classes) == cifar.CLASSES
        assert len(data.train) == 10
        assert len(data.test) == 2
    assert not (home / "cache").exists()  # only what has a name is cached
    assert expected.shape == (12, 3, 32, 32)


def test_a_pickle_that_would_run_something_is_passed_over_with_a_warning(home: Path) -> None:
    folder = home / "data" / "cifar-10-batches-py"
    _write_cifar(folder)
    ran = home / "ran"

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str, ...]]:
            return (Path.touch, (ran,))  # type: ignore[return-value]

    (folder / "data_batch_3").write_bytes(pickle.dumps({b"data": Evil(), b"labels": [1]}))
    with pytest.warns(DataWarning, match="data_batch_3"), pytest.raises(DataError, match="tfjs"):
        cifar.read()
    assert not ran.exists()
    with pytest.raises(DataError, match="is no batch of CIFAR-10"):
        installed.at(folder)
