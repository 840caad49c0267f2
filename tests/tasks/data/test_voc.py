"""Pascal VOC folders: boxes follow the pictures' size; what is wrong is named with its file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from actzip.tasks.data import DataError, DataWarning, load, task_of

BOX = ("cat", 11, 21, 30, 60)


def scene(
    folder: Path,
    name: str,
    objects: list[tuple[str, int, int, int, int]],
    annotations: Path | None = None,
) -> Path:
    """A picture of 100×80 and its XML file; the XML's path."""
    folder.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (100, 80), (50, 100, 150)).save(folder / f"{name}.png")
    parts = [
        f"<object><name>{kind}</name><bndbox><xmin>{a}</xmin><ymin>{b}</ymin>"
        f"<xmax>{c}</xmax><ymax>{d}</ymax></bndbox></object>"
        for kind, a, b, c, d in objects
    ]
    (annotations or folder).mkdir(exist_ok=True)
    xml = (annotations or folder) / f"{name}.xml"
    xml.write_text(f"<annotation>{''.join(parts)}</annotation>")
    return xml


def test_boxes_are_scaled_with_their_pictures(tmp_path: Path) -> None:
    scene(tmp_path / "train", "a", [BOX, ("dog", 1, 1, 100, 80)])
    scene(tmp_path / "test", "b", [])
    data = load(str(tmp_path), "detect", side=40)
    x, boxes = data.train.batch(torch.tensor([0]))
    assert x.shape == (1, 3, 40, 40)
    assert data.classes == ("cat", "dog")
    assert boxes[0].labels.tolist() == [0, 1]
    # from 1-based and inclusive to 0-based and exclusive, then 100×80 to 40×40
    expected = torch.tensor([[4.0, 10.0, 12.0, 30.0], [0.0, 0.0, 40.0, 40.0]])
    assert torch.allclose(boxes[0].corners, expected)
    _, empty = data.test.batch(torch.tensor([0]))
    assert empty[0].corners.shape == (0, 4)
    assert empty[0].labels.shape == (0,)


def test_the_folders_of_the_voc_challenge_are_read(tmp_path: Path) -> None:
    for i in range(5):
        scene(tmp_path / "JPEGImages", f"{i}", [BOX], tmp_path / "Annotations")
    data = load(str(tmp_path), "detect", side=32)
    assert (len(data.train), len(data.test)) == (4, 1)


def test_the_published_split_is_kept_and_test_pictures_are_not_trained_with(
    tmp_path: Path,
) -> None:
    root = tmp_path / "VOCdevkit" / "VOC2007"
    for i in range(6):
        scene(root / "JPEGImages", f"{i:06}", [BOX], root / "Annotations")
        Image.new("RGB", (100, 80), (i * 40, 0, 0)).save(root / "JPEGImages" / f"{i:06}.png")
    lists = root / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists / "trainval.txt").write_text("000000\n000003\n000004\n")
    (lists / "train.txt").write_text("000000\n")
    (lists / "val.txt").write_text("000003\n000004\n")
    (lists / "test.txt").write_text("000001\n000005\n")
    (lists / "cat_test.txt").write_text("000001  1\n000005 -1\n")
    for path in (tmp_path, tmp_path / "VOCdevkit", root):
        data = load(str(path), "detect", side=16)
        assert (len(data.train), len(data.test)) == (3, 2)
        x, _ = data.train.batch(torch.arange(3))
        y, _ = data.test.batch(torch.arange(2))
        # pictures 0, 3, 4 are trained with, 1 and 5 tested with; they differ in their red
        red = torch.cat([x, y])[:, 0].mean((1, 2))
        assert red.argsort().tolist() == [0, 3, 1, 2, 4]
        assert task_of(str(path)) == "detect"
    (lists / "test.txt").write_text("000099\n")  # its pictures were not published
    assert len(load(str(root), "detect", side=16).train) == 1
    (lists / "train.txt").write_text("000000\n000077\n")
    with pytest.warns(DataWarning, match=r"train\.txt: 000077 has no picture or no annotation"):
        load(str(root), "detect", side=16)


def test_several_years_are_read_together(tmp_path: Path) -> None:
    for year in ("VOC2007", "VOC2012"):
        root = tmp_path / year
        for i in range(3):
            scene(root / "JPEGImages", f"{i}", [BOX], root / "Annotations")
        (root / "ImageSets" / "Main").mkdir(parents=True)
        (root / "ImageSets" / "Main" / "train.txt").write_text("0\n1\n")
        (root / "ImageSets" / "Main" / "val.txt").write_text("2\n")
    data = load(str(tmp_path), "detect", side=16)
    assert (len(data.train), len(data.test)) == (4, 2)


@pytest.mark.parametrize("folders", [("images", "annotations"), ("Images", "ANNOTATIONS")])
@pytest.mark.parametrize("inner", ["", "xmls"])
def test_folders_are_known_in_any_case(
    tmp_path: Path, folders: tuple[str, str], inner: str
) -> None:
    (tmp_path / folders[1]).mkdir()
    for i in range(5):
        scene(tmp_path / folders[0], f"{i}", [BOX], tmp_path / folders[1] / inner)
    data = load(str(tmp_path), "detect", side=16)
    assert (len(data.train), len(data.test)) == (4, 1)


def test_splits_may_be_inside_the_folders(tmp_path: Path) -> None:
    (tmp_path / "annotations").mkdir()
    for split, count in (("train", 3), ("val", 2)):
        for i in range(count):
            scene(tmp_path / "images" / split, f"{i}", [BOX], tmp_path / "annotations" / split)
    data = load(str(tmp_path), "detect", side=16)
    assert (len(data.train), len(data.test)) == (3, 2)


def write(tmp_path: Path, objects: list[tuple[str, int, int, int, int]]) -> Path:
    for i in range(4):
        scene(tmp_path / "train", f"{i}", [BOX])
    scene(tmp_path / "test", "first", [BOX])
    return scene(tmp_path / "test", "last", objects)


def left_out(tmp_path: Path, message: str) -> list[int]:
    """Boxes of the test pictures that are kept, with a warning; strict refuses."""
    with pytest.warns(DataWarning, match=message):
        data = load(str(tmp_path), "detect", side=16)
    with pytest.raises(DataError, match=message):
        load(str(tmp_path), "detect", side=16, strict=True)
    _, boxes = data.test.batch(torch.arange(len(data.test)))
    return [len(one.labels) for one in boxes]


@pytest.mark.parametrize(
    "corners", [(0, 0, 102, 10), (5, 5, 10, 82), (-1, 5, 10, 10), (12, 5, 10, 10), (9, 9, 3, 20)]
)
def test_a_box_outside_the_picture_is_left_out(
    tmp_path: Path, corners: tuple[int, int, int, int]
) -> None:
    write(tmp_path, [BOX, ("cat", *corners)])
    assert left_out(tmp_path, r"last\.xml: the box of last\.png \(cat\), .* 100×80") == [1, 1]


def test_a_box_that_reaches_out_by_a_pixel_is_cut(tmp_path: Path) -> None:
    write(tmp_path, [("cat", 0, 0, 101, 81)])
    _, boxes = load(str(tmp_path), "detect", side=16).test.batch(torch.tensor([1]))
    assert boxes[0].corners.tolist() == [[0, 0, 16, 16]]


def test_unreadable_xml_is_named(tmp_path: Path) -> None:
    write(tmp_path, [BOX]).write_text("<annotation><object>")
    assert left_out(tmp_path, r"last\.xml cannot be read as XML") == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<object><name>cat</name></object>", "needs xmin"),
        ("<object><name>cat</name><bndbox><xmin>a</xmin></bndbox></object>", "needs xmin"),
        (
            "<object><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
            "</object>",
            "has no name",
        ),
    ],
)
def test_an_incomplete_object_is_named(tmp_path: Path, content: str, message: str) -> None:
    write(tmp_path, [BOX]).write_text(f"<annotation>{content}</annotation>")
    assert left_out(tmp_path, rf"last\.xml: object 0 {message}") == [1, 0]


def test_a_test_label_that_is_not_trained_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, [BOX, ("cow", 1, 1, 9, 9)])
    assert left_out(tmp_path, r"last\.xml: no training picture has a 'cow'") == [1, 1]


def test_pictures_and_xml_files_come_in_pairs(tmp_path: Path) -> None:
    write(tmp_path, [BOX]).rename(tmp_path / "test" / "other.xml")
    message = r"2 problems: .*last\.png has no XML file .*other\.xml has no picture"
    assert left_out(tmp_path, message) == [1]


def test_pictures_without_any_object_cannot_be_trained_with(tmp_path: Path) -> None:
    for i in range(3):
        scene(tmp_path, f"{i}", [])
    with pytest.raises(DataError, match="have no object"):
        load(str(tmp_path), "detect")


def test_a_broken_picture_is_named(tmp_path: Path) -> None:
    write(tmp_path, [BOX])
    (tmp_path / "test" / "last.png").write_bytes(b"\x89PNG\r\n")
    assert left_out(tmp_path, r"last\.png: the picture is broken") == [1]


def test_folders_of_something_else_are_shown(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    with pytest.raises(DataError, match=r"(?s)notes/ empty.*Pascal VOC.*COCO.*YOLO"):
        load(str(tmp_path), "detect")


def test_archives_of_training_and_of_tests_are_read_together(tmp_path: Path) -> None:
    for name, first, split in (("trainval", 0, "trainval"), ("test", 3, "test")):
        root = tmp_path / f"VOC{name}_2007" / "VOCdevkit" / "VOC2007"
        for i in range(first, first + 3):
            scene(root / "JPEGImages", f"{i}", [BOX], root / "Annotations")
        lists = root / "ImageSets" / "Main"
        lists.mkdir(parents=True)
        (lists / f"{split}.txt").write_text(f"{first}\n{first + 1}\n")
        if split == "trainval":
            (lists / "train.txt").write_text("0\n1\n")
            (lists / "val.txt").write_text("2\n")
    data = load(str(tmp_path), "detect", side=16)
    assert (len(data.train), len(data.test)) == (2, 3)  # val is tested with, as the tests are


def test_lists_beside_the_annotations_are_the_published_split(tmp_path: Path) -> None:
    for i in range(5):
        scene(tmp_path / "images", f"cat_{i}", [BOX], tmp_path / "annotations")
    (tmp_path / "annotations" / "trainval.txt").write_text("cat_0 1 1 1\ncat_3 1 1 1\n")
    (tmp_path / "annotations" / "test.txt").write_text("cat_1 1 1 1\n")
    data = load(str(tmp_path), "detect", side=16, strict=True)
    assert (len(data.train), len(data.test)) == (2, 1)


def test_endings_in_capitals_and_hidden_files_are_no_problem(tmp_path: Path) -> None:
    for i in range(5):
        xml = scene(tmp_path, f"{i}", [BOX])
        xml.rename(xml.with_suffix(".XML"))
    (tmp_path / "._0.xml").write_text("left by macOS")
    data = load(str(tmp_path), "detect", side=16, strict=True)
    assert (len(data.train), len(data.test)) == (4, 1)
