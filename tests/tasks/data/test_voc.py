"""Pascal VOC folders: boxes follow the pictures' size; what is wrong is named with its file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from actzip.tasks.data import DataError, load

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


def write(tmp_path: Path, objects: list[tuple[str, int, int, int, int]]) -> Path:
    for i in range(4):
        scene(tmp_path / "train", f"{i}", [BOX])
    return scene(tmp_path / "test", "last", objects)


@pytest.mark.parametrize(
    "corners", [(0, 0, 101, 10), (5, 5, 10, 81), (-1, 5, 10, 10), (10, 5, 10, 10), (9, 9, 3, 20)]
)
def test_a_box_outside_the_picture_is_named(
    tmp_path: Path, corners: tuple[int, int, int, int]
) -> None:
    write(tmp_path, [BOX, ("cat", *corners)])
    with pytest.raises(DataError, match=r"last\.xml: the box of object 1 \(cat\), .* 100×80"):
        load(str(tmp_path), "detect")


def test_unreadable_xml_is_named(tmp_path: Path) -> None:
    xml = write(tmp_path, [BOX])
    xml.write_text("<annotation><object>")
    with pytest.raises(DataError, match=r"last\.xml cannot be read as XML"):
        load(str(tmp_path), "detect")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<object><name>cat</name></object>", "needs a bndbox"),
        ("<object><name>cat</name><bndbox><xmin>a</xmin></bndbox></object>", "needs a bndbox"),
        (
            "<object><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
            "</object>",
            "has no name",
        ),
    ],
)
def test_an_incomplete_object_is_named(tmp_path: Path, content: str, message: str) -> None:
    write(tmp_path, [BOX]).write_text(f"<annotation>{content}</annotation>")
    with pytest.raises(DataError, match=rf"last\.xml: object 0 {message}"):
        load(str(tmp_path), "detect")


def test_a_test_label_that_is_not_trained_is_out_of_range(tmp_path: Path) -> None:
    write(tmp_path, [("cow", 1, 1, 9, 9)])
    with pytest.raises(DataError, match=r"last\.xml: the label 'cow' is out of range"):
        load(str(tmp_path), "detect")


def test_pictures_and_xml_files_come_in_pairs(tmp_path: Path) -> None:
    xml = write(tmp_path, [BOX])
    xml.rename(tmp_path / "test" / "other.xml")
    with pytest.raises(DataError, match=r"last\.png has no .*last\.xml"):
        load(str(tmp_path), "detect")
    (tmp_path / "test" / "last.png").unlink()
    with pytest.raises(DataError, match=r"other\.xml has no picture"):
        load(str(tmp_path), "detect")
    (tmp_path / "test" / "other.xml").unlink()
    with pytest.raises(DataError, match=r"the test split of .* is empty"):
        load(str(tmp_path), "detect")


def test_pictures_without_any_object_cannot_be_trained_with(tmp_path: Path) -> None:
    for i in range(3):
        scene(tmp_path, f"{i}", [])
    with pytest.raises(DataError, match="have no object"):
        load(str(tmp_path), "detect")


def test_a_broken_picture_is_named(tmp_path: Path) -> None:
    write(tmp_path, [BOX])
    (tmp_path / "test" / "last.png").write_bytes(b"\x89PNG\r\n")
    with pytest.raises(DataError, match=r"last\.png is broken"):
        load(str(tmp_path), "detect")
