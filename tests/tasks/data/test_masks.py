"""Folders of pictures and masks: labels stay labels, 255 does not count, errors name the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from actzip.tasks.data import DataError, load


def pair(root: Path, name: str, labels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> Path:
    """A picture and its mask; the mask's path."""
    for folder in ("images", "masks"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    height, width = labels.shape[:2]
    Image.new("RGB", (width, height), (50, 100, 150)).save(root / "images" / f"{name}.jpg")
    Image.fromarray(labels).save(root / "masks" / f"{name}.png")
    return root / "masks" / f"{name}.png"


def quarters(a: int, b: int, c: int, d: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    small = np.array([[a, b], [c, d]], dtype=np.uint8)
    return np.kron(small, np.ones((10, 15), dtype=np.uint8))


def test_labels_are_resized_without_new_ones_and_255_is_ignored(tmp_path: Path) -> None:
    pair(tmp_path / "train", "a", quarters(0, 1, 2, 255))
    pair(tmp_path / "val", "b", quarters(2, 2, 0, 0))
    data = load(str(tmp_path), "segment", side=8)
    assert data.classes == ("background", "class 1", "class 2")
    x, y = data.train.batch(torch.tensor([0]))
    assert x.shape == (1, 3, 8, 8)
    assert y.dtype == torch.int64
    assert y[0, :4, :4].unique().tolist() == [0]
    assert y[0, :4, 4:].unique().tolist() == [1]
    assert y[0, 4:, :4].unique().tolist() == [2]
    assert y[0, 4:, 4:].unique().tolist() == [data.ignore] == [-100]
    assert torch.equal(y, data.train.batch(torch.tensor([0]))[1])  # reading changes nothing


def test_names_come_from_classes_txt(tmp_path: Path) -> None:
    for i in range(4):
        pair(tmp_path, f"{i}", quarters(0, 1, 1, 0))
    (tmp_path / "classes.txt").write_text("sky\ntree\nhouse\n\n")
    data = load(str(tmp_path), "segment", side=8)
    assert data.classes == ("sky", "tree", "house")
    assert (len(data.train), len(data.test)) == (3, 1)


def test_masks_with_a_palette_and_of_one_bit_are_read(tmp_path: Path) -> None:
    path = pair(tmp_path / "train", "a", quarters(0, 1, 1, 0))
    Image.open(path).convert("1", dither=Image.Dither.NONE).save(path)
    Image.fromarray(quarters(0, 1, 1, 0) > 0).save(path)
    path = pair(tmp_path / "test", "b", quarters(0, 1, 0, 1))
    with Image.open(path) as mask:
        indexed = mask.copy()
    indexed.putpalette([0, 0, 0, 255, 0, 0])
    indexed.save(path)
    data = load(str(tmp_path), "segment", side=8)
    assert data.train.batch(torch.tensor([0]))[1].unique().tolist() == [0, 1]
    assert data.test.batch(torch.tensor([0]))[1].unique().tolist() == [0, 1]


def test_a_label_out_of_range_is_named(tmp_path: Path) -> None:
    pair(tmp_path / "train", "a", quarters(0, 1, 1, 0))
    pair(tmp_path / "test", "good", quarters(0, 1, 1, 0))
    pair(tmp_path / "test", "wrong", quarters(0, 1, 7, 0))
    with pytest.raises(DataError, match=r"wrong\.png: the label 7 is out of range; .* 0 to 1"):
        load(str(tmp_path), "segment")


def test_black_and_white_masks_are_explained(tmp_path: Path) -> None:
    for i in range(2):
        pair(tmp_path, f"{i}", quarters(0, 255, 255, 0))
    with pytest.raises(DataError, match="no class beside the background"):
        load(str(tmp_path), "segment")


def test_a_colour_mask_and_one_of_another_size_are_named(tmp_path: Path) -> None:
    pair(tmp_path / "train", "a", quarters(0, 1, 1, 0))
    path = pair(tmp_path / "test", "b", quarters(0, 1, 1, 0))
    Image.new("RGB", (30, 20)).save(path)
    with pytest.raises(DataError, match=r"b\.png is a colour picture \(RGB\)"):
        load(str(tmp_path), "segment")
    Image.new("L", (31, 20)).save(path)
    with pytest.raises(DataError, match=r"b\.png has 31×20 pixels, but its picture b\.jpg 30×20"):
        load(str(tmp_path), "segment")


def test_sixteen_bit_labels_beyond_a_byte_are_refused(tmp_path: Path) -> None:
    pair(tmp_path / "train", "a", quarters(0, 1, 1, 0))
    path = pair(tmp_path / "test", "b", quarters(0, 1, 1, 0))
    Image.fromarray(np.full((20, 30), 300, dtype=np.uint16)).save(path)
    with pytest.raises(DataError, match=r"b\.png: labels from 300 to 300 are out of range"):
        load(str(tmp_path), "segment")


def test_missing_masks_and_folders_are_named(tmp_path: Path) -> None:
    pair(tmp_path, "a", quarters(0, 1, 1, 0))
    pair(tmp_path, "b", quarters(0, 1, 1, 0)).unlink()
    with pytest.raises(DataError, match=r"b\.jpg has no mask of the same name"):
        load(str(tmp_path), "segment")
    (tmp_path / "images").rename(tmp_path / "pictures")
    with pytest.raises(DataError, match=r"there is no folder .*images"):
        load(str(tmp_path), "segment")


def test_one_pair_cannot_be_split(tmp_path: Path) -> None:
    pair(tmp_path, "a", quarters(0, 1, 1, 0))
    with pytest.raises(DataError, match=r"the test split of .* is empty"):
        load(str(tmp_path), "segment")
