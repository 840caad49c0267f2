"""Folders of pictures and masks: labels stay labels, 255 does not count, errors name the file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from actzip.tasks.data import DataError, DataWarning, load, task_of


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


def test_black_and_white_masks_show_one_class(tmp_path: Path) -> None:
    for i in range(2):
        pair(tmp_path, f"{i}", quarters(0, 255, 255, 0))
    data = load(str(tmp_path), "segment", side=8)
    assert data.classes == ("background", "class 1")
    for part in (data.train, data.test):
        assert part.batch(torch.tensor([0]))[1].unique().tolist() == [0, 1]
    # where 255 is said not to count, nothing is left
    with pytest.raises(DataError, match="no class beside the background"):
        load(str(tmp_path), "segment", void=255)


def test_another_value_may_be_void(tmp_path: Path) -> None:
    for i in range(2):
        pair(tmp_path, f"{i}", quarters(0, 1, 2, 11))
    assert len(load(str(tmp_path), "segment", side=8).classes) == 12
    data = load(str(tmp_path), "segment", side=8, void=11)
    assert len(data.classes) == 3
    assert data.train.batch(torch.tensor([0]))[1].unique().tolist() == [-100, 0, 1, 2]
    with pytest.raises(DataError, match="void must be a value of a mask, 0 to 255, got 256"):
        load(str(tmp_path), "segment", void=256)


def test_grey_that_was_saved_as_colour_is_read(tmp_path: Path) -> None:
    for i in range(2):
        path = pair(tmp_path, f"{i}", quarters(0, 1, 2, 0))
        with Image.open(path) as mask:
            mask.convert("RGB").save(path)
    assert len(load(str(tmp_path), "segment", side=8).classes) == 3


def wrong_label(path: Path) -> None:
    Image.fromarray(quarters(0, 1, 7, 0)).save(path)


def in_colour(path: Path) -> None:
    Image.new("RGB", (30, 20), (9, 8, 7)).save(path)


def of_another_size(path: Path) -> None:
    Image.new("L", (31, 20)).save(path)


def of_sixteen_bits(path: Path) -> None:
    Image.fromarray(np.full((20, 30), 300, dtype=np.uint16)).save(path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (wrong_label, r"b\.png: the label 7 is out of range; .* 0 to 1"),
        (in_colour, r"b\.png: it is a colour picture \(RGB\)"),
        (of_another_size, r"b\.png has 31×20 pixels, but its picture b\.jpg 30×20"),
        (of_sixteen_bits, r"b\.png: labels from 300 to 300 are out of range"),
        (Path.unlink, r"b\.jpg has no mask of its name"),
        (lambda path: path.write_bytes(b"x"), r"b\.png: the picture is broken"),
    ],
)
def test_a_mask_that_cannot_be_used_is_left_out_and_named(
    tmp_path: Path, spoil: Callable[[Path], object], message: str
) -> None:
    pair(tmp_path / "train", "a", quarters(0, 1, 1, 0))
    pair(tmp_path / "test", "a", quarters(0, 1, 1, 0))
    spoil(pair(tmp_path / "test", "b", quarters(0, 1, 1, 0)))
    with pytest.warns(DataWarning, match=message):
        assert len(load(str(tmp_path), "segment", side=8).test) == 1
    with pytest.raises(DataError, match=message):
        load(str(tmp_path), "segment", side=8, strict=True)


def moved(root: Path, place: Callable[[str, str, str], str]) -> None:
    """Three training and two test pairs where `place(split, kind, name)` says."""
    for split, count in (("train", 3), ("val", 2)):
        for i in range(count):
            mask = pair(root / "made", f"{split}{i}", quarters(0, 1, 2, 0))
            picture = root / "made" / "images" / f"{split}{i}.jpg"
            for path, kind in ((picture, "image"), (mask, "mask")):
                target = root / place(split, kind, path.stem)
                target = target.with_name(target.name + path.suffix)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
    shutil.rmtree(root / "made")


CAMVID = {"image": "", "mask": "annot"}
ADE = {"train": "training", "val": "validation"}


@pytest.mark.parametrize(
    "place",
    [
        lambda split, kind, name: f"{split}{CAMVID[kind]}/{name}",
        lambda split, kind, name: f"SegNet/CamVid/{split}{CAMVID[kind]}/{name}",
        lambda split, kind, name: f"{split}_{kind}s/{name}",
        lambda split, kind, name: f"{split}/{kind}s/{name}",
        lambda split, kind, name: f"{kind}s/{split}/{name}",
        lambda split, kind, name: f"{'Images' if kind == 'image' else 'Labels'}/{split}/{name}",
        lambda split, kind, name: (
            f"ade/{'images' if kind == 'image' else 'annotations'}/{ADE[split]}/{name}"
        ),
    ],
)
def test_published_layouts_with_a_split_are_read(
    tmp_path: Path, place: Callable[[str, str, str], str]
) -> None:
    moved(tmp_path, place)
    data = load(str(tmp_path), "segment", side=8)
    assert (len(data.train), len(data.test), len(data.classes)) == (3, 2, 3)
    assert task_of(str(tmp_path)) == "segment"


@pytest.mark.parametrize(
    "place",
    [
        lambda split, kind, name: f"images/{name}" if kind == "image" else f"labels/{name}_L",
        lambda split, kind, name: f"imgs/{name}" if kind == "image" else f"masks/{name}_mask",
        lambda split, kind, name: f"{kind}s/{kind}_{name}",
        lambda split, kind, name: name if kind == "image" else f"{name}_mask",
        lambda split, kind, name: (
            f"images/{name}" if kind == "image" else f"annotations/trimaps/{name}"
        ),
    ],
)
def test_published_layouts_in_one_piece_are_read(
    tmp_path: Path, place: Callable[[str, str, str], str]
) -> None:
    moved(tmp_path, place)
    data = load(str(tmp_path), "segment", side=8)
    assert (len(data.train), len(data.test), len(data.classes)) == (4, 1, 3)
    assert task_of(str(tmp_path)) == "segment"


def test_the_split_of_pascal_voc_is_kept(tmp_path: Path) -> None:
    root = tmp_path / "VOCdevkit" / "VOC2012"
    folders = {"image": "JPEGImages", "mask": "SegmentationClass"}
    moved(root, lambda split, kind, name: f"{folders[kind]}/{name}")
    Image.new("RGB", (9, 9)).save(root / "JPEGImages" / "unmarked.jpg")  # most of VOC's are
    lists = root / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("train0\ntrain2\n")
    (lists / "val.txt").write_text("val1\n")
    data = load(str(tmp_path / "VOCdevkit"), "segment", side=8)
    assert (len(data.train), len(data.test)) == (2, 1)
    assert "ImageSets/Segmentation/train.txt and val.txt" in data.layout


def test_folders_without_masks_are_shown(tmp_path: Path) -> None:
    pair(tmp_path, "a", quarters(0, 1, 1, 0))
    (tmp_path / "masks").rename(tmp_path / "colours")
    with pytest.raises(DataError, match=r"(?s)colours/ a\.png.*images/ \+ masks/"):
        load(str(tmp_path), "segment")


def test_one_pair_cannot_be_split(tmp_path: Path) -> None:
    pair(tmp_path, "a", quarters(0, 1, 1, 0))
    with pytest.raises(DataError, match=r"the test split of .* is empty"):
        load(str(tmp_path), "segment")


def test_pictures_and_masks_in_class_folders_are_for_segment(tmp_path: Path) -> None:
    for name in ("benign", "malignant"):
        for i in range(3):
            mask = pair(tmp_path / "aside", f"{name} ({i})", quarters(0, 255, 255, 0))
            folder = tmp_path / "set" / name
            folder.mkdir(parents=True, exist_ok=True)
            shutil.move(mask, folder / f"{name} ({i})_mask.png")
            shutil.move(tmp_path / "aside" / "images" / f"{name} ({i}).jpg", folder)
    assert task_of(str(tmp_path / "set")) == "segment"
    data = load(str(tmp_path / "set"), "segment", side=8, strict=True)
    assert (len(data.train), len(data.test)) == (5, 1)


def test_the_same_in_a_folder_for_each_split_keeps_the_split(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("test", 2)):
        (tmp_path / split).mkdir()
        for i in range(count):
            mask = pair(tmp_path / "aside", f"{split}{i}", quarters(0, 1, 1, 0))
            shutil.move(mask, tmp_path / split / f"{split}{i}_mask.png")
            shutil.move(tmp_path / "aside" / "images" / f"{split}{i}.jpg", tmp_path / split)
    shutil.rmtree(tmp_path / "aside")
    data = load(str(tmp_path), "segment", side=8, strict=True)
    assert (len(data.train), len(data.test)) == (3, 2)


def test_years_of_voc_are_read_together(tmp_path: Path) -> None:
    for year in ("VOC2007", "VOC2012"):
        root = tmp_path / "VOCdevkit" / year
        for i in range(3):
            pair(root, f"{i}", quarters(0, 1, 2, 255))
        (root / "images").rename(root / "JPEGImages")
        (root / "masks").rename(root / "SegmentationClass")
        (root / "ImageSets" / "Segmentation").mkdir(parents=True)
        (root / "ImageSets" / "Segmentation" / "train.txt").write_text("0\n1\n")
        (root / "ImageSets" / "Segmentation" / "val.txt").write_text("2\n")
    data = load(str(tmp_path), "segment", side=8)
    assert (len(data.train), len(data.test)) == (4, 2)
    assert data.classes == ("background", "class 1", "class 2")


@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_white_shapes_with_soft_edges_are_one_class(tmp_path: Path, ending: str) -> None:
    for i in range(4):
        path = pair(tmp_path, f"{i}", quarters(0, 255, 255, 0).repeat(4, 0).repeat(4, 1))
        soft = Image.open(path).resize((87, 59), Image.Resampling.BICUBIC)
        path.unlink()
        soft.save(path.with_suffix(f".{ending}"))
        Image.new("RGB", soft.size).save(tmp_path / "images" / f"{i}.jpg")
    data = load(str(tmp_path), "segment", side=32, strict=True)
    assert data.classes == ("background", "class 1")
    _, y = data.train.batch(torch.arange(3))
    assert 0.4 < (y == 1).float().mean() < 0.6


def test_names_that_do_not_match_are_told_when_nothing_fits(tmp_path: Path) -> None:
    pair(tmp_path, "a", quarters(0, 1, 1, 0)).rename(tmp_path / "masks" / "b.png")
    with pytest.raises(DataError, match=r"a\.jpg has no mask of its name") as said:
        load(str(tmp_path), "segment")
    assert "    masks/ b.png" in str(said.value).splitlines()
