"""A tree of class folders: read, split, and refused with the reason when something is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from actzip.tasks.data import DataError, DataWarning, load, reading, task_of
from actzip.tasks.data.problems import Problems


def picture(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (12, 10)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def tree(root: Path, count: int = 5) -> Path:
    """Reds are 200 to 200 + count, blues the same."""
    for i in range(count):
        picture(root / "red" / f"{i}.png", (200 + i, 0, 0))
        picture(root / "blue" / f"{i}.png", (0, 0, 200 + i))
    return root


def test_one_tree_is_split_by_the_seed_class_by_class(tmp_path: Path) -> None:
    data = load(str(tree(tmp_path)), "classify", side=16)
    assert data.classes == ("blue", "red")
    assert (data.channels, data.side) == (3, 16)
    assert (len(data.train), len(data.test)) == (8, 2)
    x, y = data.test.batch(torch.arange(2))
    assert x.shape == (2, 3, 16, 16)
    assert sorted(y.tolist()) == [0, 1]
    for one, label in zip(x, y, strict=True):  # blue pictures are blue, red ones red
        assert (one[2] > one[0]).all() == (label == 0)


@pytest.mark.parametrize("name", ["test", "val"])
def test_a_split_of_ones_own_is_kept(tmp_path: Path, name: str) -> None:
    tree(tmp_path / "train", 3)
    tree(tmp_path / name, 1)
    data = load(str(tmp_path), "classify", side=8)
    assert (len(data.train), len(data.test)) == (6, 2)


def test_a_limit_reads_no_more_than_that(tmp_path: Path) -> None:
    assert len(load(str(tree(tmp_path)), "classify", side=8, limit=3).train) == 3


def test_grey_and_palette_pictures_become_colour(tmp_path: Path) -> None:
    tree(tmp_path)
    Image.new("L", (9, 9), 128).save(tmp_path / "red" / "grey.png")
    Image.fromarray(np.zeros((9, 9), dtype=np.uint8)).convert("P").save(tmp_path / "red" / "p.gif")
    (tmp_path / "red" / ".hidden.png").write_text("not looked at")
    (tmp_path / "red" / "notes.txt").write_text("not looked at")
    data = load(str(tmp_path), "classify", side=8)
    assert len(data.train) + len(data.test) == 12


@pytest.mark.parametrize("broken", [b"\x89PNG\r\n", b"", b"no picture at all"])
def test_a_broken_picture_is_left_out_and_named(tmp_path: Path, broken: bytes) -> None:
    tree(tmp_path)
    (tmp_path / "red" / "3.png").write_bytes(broken)
    with pytest.warns(DataWarning, match=r"left out: 1 problem: .*3\.png: the picture is broken"):
        data = load(str(tmp_path), "classify", side=8)
    assert len(data.train) + len(data.test) == 9
    assert len(data.problems) == 1
    with pytest.raises(DataError, match=r"3\.png.*without --strict these are left out"):
        load(str(tmp_path), "classify", side=8, strict=True)


def test_a_truncated_jpeg_is_named(tmp_path: Path) -> None:
    tree(tmp_path)
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    path = tmp_path / "blue" / "cut.jpg"
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:900])
    with pytest.warns(DataWarning, match=r"cut\.jpg: the picture is broken"):
        load(str(tmp_path), "classify", side=8)


def test_when_all_pictures_are_broken_there_is_nothing_to_train_with(tmp_path: Path) -> None:
    tree(tmp_path)
    for path in tmp_path.glob("*/*.png"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"no picture can be read; 8 problems: .* and 3 more"):
        load(str(tmp_path), "classify")


def test_a_test_class_that_is_not_trained_is_left_out(tmp_path: Path) -> None:
    tree(tmp_path / "train")
    tree(tmp_path / "test", 1)
    picture(tmp_path / "test" / "green" / "0.png", (0, 200, 0))
    with pytest.warns(DataWarning, match="no training picture is of the class 'green'"):
        data = load(str(tmp_path), "classify", side=8)
    assert (data.classes, len(data.test)) == (("blue", "red"), 2)


def test_an_empty_class_folder_is_named(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "green").mkdir()
    with pytest.warns(DataWarning, match=r"the class folder .*green has no pictures"):
        assert load(str(tmp_path), "classify", side=8).classes == ("blue", "red")


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("Training", "Test"),
        ("TRAIN", "VALID"),
        ("seg_train/seg_train", "seg_test/seg_test"),
        ("archive/set/train", "archive/set/val"),
        ("Final_Training/Images", "Final_Test/Images"),
    ],
)
def test_published_names_of_splits_are_known(tmp_path: Path, train: str, test: str) -> None:
    tree(tmp_path / train, 3)
    tree(tmp_path / test, 2)
    data = load(str(tmp_path), "classify", side=8)
    assert (len(data.train), len(data.test)) == (6, 4)
    assert data.layout == "class folders for each split"
    assert task_of(str(tmp_path)) == "classify"


def test_class_folders_may_be_wrapped_and_hold_folders(tmp_path: Path) -> None:
    tree(tmp_path / "caltech" / "101_categories")
    (tmp_path / "caltech" / "README.md").write_text("what this is")
    for i in range(5):
        picture(tmp_path / "caltech/101_categories/green" / f"part{i}" / "a.png", (0, 200 + i, 0))
    data = load(str(tmp_path), "classify", side=8)
    assert data.classes == ("blue", "green", "red")
    assert (len(data.train), len(data.test)) == (12, 3)


def test_a_test_folder_without_classes_is_passed_over(tmp_path: Path) -> None:
    tree(tmp_path / "train", 3)
    tree(tmp_path / "val", 1)
    picture(tmp_path / "test" / "unknown.png", (1, 2, 3))  # published without answers
    data = load(str(tmp_path), "classify", side=8)
    assert (len(data.train), len(data.test)) == (6, 2)


def test_training_pictures_alone_are_split(tmp_path: Path) -> None:
    tree(tmp_path / "train")
    data = load(str(tmp_path), "classify", side=8)
    assert (len(data.train), len(data.test)) == (8, 2)


def test_empty_things_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no layout that classify reads"):
        load(str(tmp_path), "classify")
    (tmp_path / "red").mkdir()
    (tmp_path / "blue").mkdir()
    with pytest.raises(DataError, match="no layout that classify reads"):
        load(str(tmp_path), "classify")


def test_one_picture_per_class_leaves_nothing_to_test_with(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the test split of .* is empty"):
        load(str(tree(tmp_path, 1)), "classify")


def test_a_file_is_no_tree(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", (1, 2, 3))
    with pytest.raises(DataError, match=r"a\.png, a file of \d+ bytes"):
        load(str(tmp_path / "a.png"), "classify")


def test_more_than_fits_in_memory_is_refused_before_reading() -> None:
    with pytest.raises(DataError, match=r"take 48 GiB .* smaller side or a limit"):
        reading.pictures([Path("absent.png")] * (1 << 18), 256, Problems())


def test_without_pillow_the_error_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'actzip\[bench\]'"):
        load(str(tree(tmp_path)), "classify")


def test_folders_that_say_which_part_they_are_name_no_class(tmp_path: Path) -> None:
    for part in ("train", "test", "Test_Images", "masks"):
        picture(tmp_path / part / "0.png", (1, 2, 3))
        picture(tmp_path / part / "1.png", (1, 2, 3))
    with pytest.raises(DataError, match="no layout that classify reads"):
        load(str(tmp_path), "classify")
    with pytest.raises(DataError, match="no layout that any task reads"):
        task_of(str(tmp_path))


def test_class_folders_may_lie_beside_other_folders(tmp_path: Path) -> None:
    tree(tmp_path / "images")
    (tmp_path / "meta").mkdir()
    data = load(str(tmp_path), "classify", side=8)
    assert data.classes == ("blue", "red")
    assert task_of(str(tmp_path)) == "classify"
