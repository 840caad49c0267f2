"""YOLO folders: lines of class and box in parts of the picture, names from what is beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from actzip.tasks.data import DataError, DataWarning, load, task_of

LINES = "1 0.25 0.5 0.3 0.5\n0 0.5 0.5 1 1\n"


def marked(images: Path, labels: Path, count: int, lines: str | None = LINES) -> None:
    """`count` pictures of 100×80 with these lines."""
    for folder in (images, labels):
        folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        Image.new("RGB", (100, 80), (50, 100, 150)).save(images / f"{i}.jpg")
        if lines is not None:
            (labels / f"{i}.txt").write_text(lines)


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        ("images/{}", "labels/{}"),
        ("{}/images", "{}/labels"),
        ("set/{}/Images", "set/{}/Labels"),
        ("{}", "{}"),
    ],
)
def test_published_layouts_are_read(tmp_path: Path, images: str, labels: str) -> None:
    for split, count in (("train", 3), ("val", 2)):
        marked(tmp_path / images.format(split), tmp_path / labels.format(split), count)
    data = load(str(tmp_path), "detect", side=40)
    assert (len(data.train), len(data.test)) == (3, 2)
    assert data.classes == ("class 0", "class 1")
    _, boxes = data.train.batch(torch.tensor([0]))
    assert boxes[0].labels.tolist() == [1, 0]
    expected = torch.tensor([[4.0, 10.0, 16.0, 30.0], [0.0, 0.0, 40.0, 40.0]])
    assert torch.allclose(boxes[0].corners, expected, atol=1e-4)
    assert task_of(str(tmp_path)) == "detect"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("data.yaml", "train: ../train\nnc: 2\nnames: ['cat', \"big dog\"]\n"),
        ("data.yaml", "names:\n  - cat\n  - big dog\nnc: 2\n"),
        ("data.yaml", "names:\n- cat\n- big dog\n"),
        ("data.yaml", "path: x\nnames:\n  0: cat  # a comment\n  1: big dog\ntest: y\n"),
        ("classes.txt", "cat\nbig dog\n"),
        ("obj.names", "cat\nbig dog\n"),
    ],
)
def test_names_come_from_beside_the_data(tmp_path: Path, file: str, content: str) -> None:
    marked(tmp_path / "images", tmp_path / "labels", 5)
    (tmp_path / file).write_text(content)
    data = load(str(tmp_path), "detect", side=16)
    assert data.classes == ("cat", "big dog")
    assert (len(data.train), len(data.test)) == (4, 1)


def test_a_picture_without_a_file_has_no_object_and_polygons_have_a_box(tmp_path: Path) -> None:
    marked(tmp_path / "train/images", tmp_path / "train/labels", 2)
    (tmp_path / "train/labels/0.txt").unlink()
    (tmp_path / "train/labels/1.txt").write_text("0 0.1 0.2 0.5 0.4 0.3 0.9\n\n")
    marked(tmp_path / "val/images", tmp_path / "val/labels", 1)
    (tmp_path / "val/labels/0.txt").write_text("0 0.5 0.5 0.2 0.2 0.99\n")  # with a confidence
    data = load(str(tmp_path), "detect", side=100)
    _, boxes = data.train.batch(torch.arange(2))
    assert len(boxes[0].labels) == 0
    assert torch.allclose(boxes[1].corners, torch.tensor([[10.0, 20.0, 50.0, 90.0]]), atol=1e-3)
    _, boxes = data.test.batch(torch.arange(1))
    assert torch.allclose(boxes[0].corners, torch.tensor([[40.0, 40.0, 60.0, 60.0]]), atol=1e-3)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 0.5 0.5", r"line 1: 3 numbers; a line is: class x y width height"),
        ("cat 0.5 0.5 1 1", "line 1: could not convert"),
        ("2 0.5 0.5 1 1", "line 1: there is no class 2"),
        ("0 0.9 0.5 0.9 0.5", "is empty or outside the picture of 100×80"),
    ],
)
def test_a_line_that_is_no_box_is_left_out(tmp_path: Path, line: str, message: str) -> None:
    for split in ("train", "test"):
        marked(tmp_path / split / "images", tmp_path / split / "labels", 1)
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    (tmp_path / "test/labels/0.txt").write_text(f"{line}\n{LINES}")
    with pytest.warns(DataWarning, match=message):
        _, boxes = load(str(tmp_path), "detect", side=16).test.batch(torch.tensor([0]))
    assert len(boxes[0].labels) == 2
    with pytest.raises(DataError, match=message):
        load(str(tmp_path), "detect", side=16, strict=True)


def test_names_may_stand_among_the_labels(tmp_path: Path) -> None:
    for split in ("train", "val"):
        marked(tmp_path / split / "images", tmp_path / split / "labels", 2)
    (tmp_path / "train" / "labels" / "classes.txt").write_text("cat\r\nbig dog\r\n")
    assert load(str(tmp_path), "detect", side=16).classes == ("cat", "big dog")
    (tmp_path / "data.yaml").write_bytes(b"\xef\xbb\xbfnames: [a, b]\r\n")  # with a mark
    assert load(str(tmp_path), "detect", side=16).classes == ("a", "b")


def test_lists_of_pictures_are_the_published_split(tmp_path: Path) -> None:
    marked(tmp_path / "Images", tmp_path / "Labels", 4)
    for path in (tmp_path / "Labels").iterdir():
        path.rename(path.with_suffix(".TXT"))
    (tmp_path / "Labels" / "._0.txt").write_text("left by macOS")
    (tmp_path / "train.txt").write_text("data/images/0.jpg\ndata/images/2.jpg\n")
    (tmp_path / "valid.txt").write_text("data\\images\\1.jpg\r\n")
    data = load(str(tmp_path), "detect", side=16, strict=True)
    assert (len(data.train), len(data.test)) == (2, 1)
    assert "split by train.txt and valid.txt" in data.layout
