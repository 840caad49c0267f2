"""load: names before paths, and requests that make no sense are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from actzip.tasks import digits
from actzip.tasks.data import BUILTIN, DataError, load, task_of
from actzip.tasks.data.contract import TASKS


def test_every_task_has_built_in_data() -> None:
    for task in TASKS:
        assert any(task in one.tasks for one in BUILTIN.values())
    assert {name for name, one in BUILTIN.items() if not one.network} == {"digits", "digit-scenes"}


def test_digits_are_those_of_the_digits_file() -> None:
    data = load("digits", "classify")
    split = digits.load(32, 0)
    x, y = data.train.batch(torch.arange(digits.TRAIN))
    assert torch.allclose(x, split.train_x, atol=1e-4)
    assert torch.equal(y, split.train_y)
    assert torch.equal(data.test.batch(torch.arange(digits.TEST))[1], split.test_y)
    assert (data.channels, data.side, len(data.classes)) == (1, 32, 10)
    # digits are not augmented: a mirrored 2 is no 2
    assert torch.equal(data.train.batch(torch.tensor([0]), torch.Generator())[0], x[:1])


def test_a_seed_chooses_split_and_limit() -> None:
    first, again, other = (load("digits", "classify", side=8, limit=9, seed=s) for s in (1, 1, 2))
    at = torch.arange(9)
    assert len(first.train) == len(first.test) == 9
    assert torch.equal(first.train.batch(at)[0], again.train.batch(at)[0])
    assert not torch.equal(first.train.batch(at)[0], other.train.batch(at)[0])


@pytest.mark.parametrize(
    ("name", "task", "message"),
    [
        ("digits", "paint", "unknown task 'paint'; allowed are classify, detect"),
        ("no-such", "lm", "is no built-in name and no path; built-in for lm: shakespeare"),
        ("digits", "text", "'digits' is for classify; built-in for text: movie-reviews"),
        ("absent/folder", "detect", "is no built-in name and no path"),
        ("", "detect", "'' is no built-in name and no path"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(name: str, task: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(name, task)


def test_a_name_goes_before_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load("digits", "classify", side=8).classes == tuple("0123456789")
    with pytest.raises(DataError, match="no layout that classify reads"):
        load("./digits", "classify")


def test_senseless_sizes_are_refused() -> None:
    with pytest.raises(DataError, match="side must be at least 8, got 4"):
        load("digits", "classify", side=4)
    with pytest.raises(DataError, match="limit must be at least 1, got 0"):
        load("digits", "classify", limit=0)
    with pytest.raises(DataError, match="length must be at least 2, got 1"):
        load("shakespeare", "lm", length=1)
    with pytest.raises(DataError, match="lm data have no side, got side=32"):
        load("shakespeare", "lm", side=32)
    with pytest.raises(DataError, match="detect data have no length, got length=9"):
        load("digit-scenes", "detect", length=9)


def test_options_of_other_data_are_refused() -> None:
    with pytest.raises(DataError, match="void is for segment data, these are for classify: 11"):
        load("digits", "classify", void=11)
    with pytest.raises(DataError, match="text_column is for text data, these are for lm"):
        load("shakespeare", "lm", text_column="review")


def test_a_data_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="no built-in name"):
        load("no-such", "classify")


def test_a_name_says_its_task_where_it_has_one() -> None:
    assert task_of("digits") == "classify"
    assert task_of("shakespeare") == "lm"
    with pytest.raises(DataError, match="scenes fits detect and segment; say which with --task"):
        task_of("scenes")
    with pytest.raises(DataError, match="is no path and no built-in name"):
        task_of("no-such")
    with pytest.raises(DataError, match="'' is no path"):
        task_of("")


def test_files_say_their_task(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "a.csv").write_text("text,label\na,b\n")
    assert task_of(str(tmp_path / "a.txt")) == "lm"
    assert task_of(str(tmp_path / "a.csv")) == "text"
    assert task_of(str(tmp_path)) == "text"


def test_what_fits_nothing_is_shown_as_a_tree_with_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "sounds" / "loud").mkdir(parents=True)
    for i in range(5):
        (tmp_path / "sounds" / "loud" / f"{i}.wav").write_bytes(b"")
    (tmp_path / "read.me").write_text("")
    (tmp_path / "other").mkdir()
    with pytest.raises(DataError) as said:
        task_of(str(tmp_path))
    lines = str(said.value).splitlines()
    assert f"  {tmp_path.name}/ read.me" in lines
    assert "      loud/ 5 .wav (0.wav, …)" in lines
    assert "    other/ empty" in lines
    assert any("JPEGImages/ + Annotations/*.xml" in line for line in lines)
    assert any("train/<class>/ + test/<class>/" in line for line in lines)
