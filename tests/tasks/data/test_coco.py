"""COCO JSON files: pictures where they are published, boxes, crowds, what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from actzip.tasks.data import DataWarning, load, task_of

CATEGORIES = [{"id": 7, "name": "dog"}, {"id": 2, "name": "zebra"}, {"id": 9, "name": "unseen"}]


def annotated(
    file: Path, pictures: Path, count: int, boxes: list[dict[str, Any]] | None = None
) -> None:
    """A JSON file about `count` pictures of 100×80, each with a zebra and a dog."""
    pictures.mkdir(parents=True, exist_ok=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    images, marked = [], list(boxes or [])
    for i in range(count):
        Image.new("RGB", (100, 80), (50, 100, 150)).save(pictures / f"{i:012}.jpg")
        images.append({"id": i, "file_name": f"{i:012}.jpg"})
        marked.append({"id": 2 * i, "image_id": i, "category_id": 7, "bbox": [10, 20, 30, 40]})
        marked.append({"id": 2 * i + 1, "image_id": i, "category_id": 2, "bbox": [0, 0, 100, 80]})
    values = {"images": images, "annotations": marked, "categories": CATEGORIES}
    file.write_text(json.dumps(values))


@pytest.mark.parametrize("images", ["", "images/"])
def test_the_published_folders_are_read(tmp_path: Path, images: str) -> None:
    root = tmp_path / "coco"
    for split, count in (("train2017", 3), ("val2017", 2)):
        file = root / "annotations" / f"instances_{split}.json"
        annotated(file, root / f"{images}{split}", count)
    (root / "annotations" / "captions_train2017.json").write_text("not looked at")
    data = load(str(tmp_path), "detect", side=40)
    assert (len(data.train), len(data.test)) == (3, 2)
    assert data.classes == ("zebra", "dog")  # in the order of their numbers, those that occur
    _, boxes = data.train.batch(torch.tensor([0]))
    assert boxes[0].labels.tolist() == [1, 0]
    assert torch.allclose(
        boxes[0].corners, torch.tensor([[4.0, 10.0, 16.0, 30.0], [0.0, 0.0, 40.0, 40.0]])
    )
    assert task_of(str(tmp_path)) == "detect"


def test_a_file_in_each_split_is_read(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("valid", 2), ("test", 1)):
        annotated(tmp_path / split / "_annotations.coco.json", tmp_path / split, count)
    data = load(str(tmp_path), "detect", side=16)
    assert (len(data.train), len(data.test)) == (3, 1)


def test_one_file_is_split_by_the_seed(tmp_path: Path) -> None:
    annotated(tmp_path / "labels.json", tmp_path / "images", 5)
    data = load(str(tmp_path), "detect", side=16)
    assert (len(data.train), len(data.test)) == (4, 1)


def test_crowds_are_no_objects_and_what_is_wrong_is_left_out(tmp_path: Path) -> None:
    wrong = [
        {"id": 90, "image_id": 0, "category_id": 7, "bbox": [0, 0, 90, 70], "iscrowd": 1},
        {"id": 91, "image_id": 0, "category_id": 5, "bbox": [0, 0, 9, 9]},
        {"id": 92, "image_id": 0, "category_id": 7, "bbox": [0, 0, 9]},
        {"id": 93, "image_id": 0, "category_id": 7, "bbox": [50, 50, 0, 9]},
    ]
    annotated(tmp_path / "train.json", tmp_path / "images", 2, wrong)
    annotated(tmp_path / "val.json", tmp_path / "images", 3)
    (tmp_path / "images" / "000000000002.jpg").unlink()
    with pytest.warns(DataWarning) as said:
        data = load(str(tmp_path), "detect", side=16)
    (text,) = (str(each.message) for each in said)
    assert "4 problems" in text
    for piece in ("no picture 000000000002.jpg", "annotation 91", "annotation 92", "50 50 50 59"):
        assert piece in text
    assert len(data.test) == 2
    assert len(data.train.batch(torch.tensor([0]))[1][0].labels) == 2


def test_json_that_is_something_else_is_not_taken_for_coco(tmp_path: Path) -> None:
    annotated(tmp_path / "all.json", tmp_path / "images", 5)
    (tmp_path / "package.json").write_text('{"name": "x"}')
    (tmp_path / "half.json").write_text("{")
    with pytest.warns(DataWarning, match=r"1 problem: .*half\.json cannot be read as JSON"):
        assert len(load(str(tmp_path), "detect", side=16).train) == 4


def test_names_and_endings_of_other_systems_are_read(tmp_path: Path) -> None:
    file = tmp_path / "Annotations" / "Train.JSON"
    annotated(file, tmp_path / "Images" / "Train", 5)
    text = file.read_text().replace('"file_name": "', '"file_name": "C:\\\\set\\\\')
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    data = load(str(tmp_path), "detect", side=16, strict=True)
    assert (len(data.train), len(data.test)) == (4, 1)
