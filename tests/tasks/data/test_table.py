"""CSV files of texts and labels: classes from the labels, errors with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from actzip.tasks.data import DataError, load

ROWS = "".join(f'"good, film {i}",up\nbad film {i},down\n' for i in range(10))


def table(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def test_one_file_is_split_by_the_seed(tmp_path: Path) -> None:
    data = load(table(tmp_path / "a.csv", f"\ufeffLabel , TEXT\n{_swapped()}"), "text", length=4)
    assert data.classes == ("down", "up")
    assert (len(data.train), len(data.test)) == (16, 4)
    assert (data.length, data.padding) == (4, 0)
    x, y = data.train.batch(torch.arange(16))
    assert x.shape == (16, 4)
    assert int(x.max()) < data.vocabulary
    good = {int(label) for row, label in zip(x, y, strict=True) if row[0] == x[y == 1][0, 0]}
    assert good == {1}  # "good" stands only in texts with the label up


def _swapped() -> str:
    return "".join(f'up,"good, film {i}"\ndown,bad film {i}\n\n' for i in range(10))


def test_a_split_of_ones_own_is_kept(tmp_path: Path) -> None:
    table(tmp_path / "train.csv", f"text,label\n{ROWS}")
    table(tmp_path / "test.csv", "text,label\ngood,up\n")
    data = load(str(tmp_path), "text")
    assert (len(data.train), len(data.test)) == (20, 1)
    assert data.length == 128
    assert data.test.batch(torch.tensor([0]))[1].tolist() == [1]
    assert len(load(str(tmp_path), "text", limit=6).train) == 6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("review,stars\ngood,5\n", r"needs the columns text and label .* got review, stars"),
        ("", "got nothing"),
        ("text,label\n", "the training split of .* is empty"),
        ("text,label\ngood,up\n", "the test split of .* is empty"),
        ("text,label\ngood,up\nfine,up\n", "all have the label 'up'"),
        ("text,label\ngood,up\nfine\n", "line 3: a text or a label is missing"),
        ("text,label\n ,up\n", "line 2: a text or a label is missing"),
        ('text,label\n"good"x,up\n', "line 2: .* is it a CSV file"),
        ("text,label\n" + "*,a\n*,b\n" * 10, "hold no word"),
        (b"text,label\n\xff\xfe,up\n", "not text in UTF-8"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        load(table(tmp_path / "a.csv", content), "text")


def test_a_test_label_that_is_not_trained_is_out_of_range(tmp_path: Path) -> None:
    table(tmp_path / "train.csv", f"text,label\n{ROWS}")
    table(tmp_path / "val.csv", "text,label\nso so,middling\n")
    with pytest.raises(DataError, match=r"val\.csv: the label 'middling' .* out of range"):
        load(str(tmp_path), "text")


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no folder with train\.csv and test\.csv"):
        load(str(tmp_path), "text")
