"""CSV files of texts and labels: classes from the labels, errors with file and line."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from actzip.tasks.data import DataError, DataWarning, load

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
        ("", "is empty"),
        ("text,label\n", "the training split of .* is empty"),
        ("text,label\ngood,up\n", "the test split of .* is empty"),
        ("text,label\ngood,up\nfine,up\n", "all have the label 'up'"),
        ("text,label\n" + "*,a\n*,b\n" * 10, "hold no word"),
        ("one\ntwo\nthree\n", "cannot be told from .* --text-column and --label-column"),
        (b"PK\x03\x04\x00\x00", "it holds zero bytes"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        load(table(tmp_path / "a.csv", content), "text")


def test_rows_without_a_text_or_a_label_are_left_out(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", f"text,label\n{ROWS},up\nfine,\nshort\n")
    with pytest.warns(DataWarning, match=r"3 problems: .*row 22: a text or a label is missing"):
        data = load(path, "text")
    assert len(data.train) + len(data.test) == 20
    assert data.problems[2].endswith("a.csv, row 24: it has 1 columns, the first one 2")
    with pytest.raises(DataError, match="row 22"):
        load(path, "text", strict=True)


def test_a_test_label_that_is_not_trained_is_left_out(tmp_path: Path) -> None:
    table(tmp_path / "train.csv", f"text,label\n{ROWS}")
    table(tmp_path / "val.csv", "text,label\nso so,middling\ngood,up\n")
    with pytest.warns(DataWarning, match="no training text has the label 'middling'"):
        assert len(load(str(tmp_path), "text").test) == 1


def cells(*rows: tuple[str, ...], delimiter: str) -> str:
    return "".join(delimiter.join(row) + "\n" for row in rows)


#: a number, a text with a comma, a class, a word that is always the same
PUBLISHED = [
    (str(i), f"a long sentence, number {i}, on the subject", "up" if i % 2 else "down", "same")
    for i in range(20)
]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
@pytest.mark.parametrize("header", [("Id", "Phrase", "Verdict", "Query"), None])
@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_delimiters_columns_and_headers_are_guessed(
    tmp_path: Path, delimiter: str, header: tuple[str, ...] | None, ending: str
) -> None:
    rows = [header, *PUBLISHED] if header else PUBLISHED
    data = load(table(tmp_path / f"a.{ending}", cells(*rows, delimiter=delimiter)), "text")
    assert data.classes == ("down", "up")
    assert len(data.train) + len(data.test) == 20
    found = "texts in 'Phrase', labels in 'Verdict'" if header else "no header, texts in column 2"
    assert found in data.layout


def test_columns_are_named_by_option(tmp_path: Path) -> None:
    rows = cells(("a", "b", "c", "d"), *PUBLISHED, delimiter="\t")
    path = table(tmp_path / "a.tsv", rows)
    data = load(path, "text", text_column="B", label_column="3")
    assert "texts in 'b', labels in 'c'" in data.layout
    assert len(data.train) + len(data.test) == 20
    with pytest.raises(DataError, match="has no column 'review' for --text-column; it has a, b"):
        load(path, "text", text_column="review")


def test_numbered_labels_without_a_header_as_ag_news_has_them(tmp_path: Path) -> None:
    rows = "".join(
        f'"{i % 4 + 1}","Title {i}","What happened, {i}, at length"\n' for i in range(40)
    )
    data = load(table(tmp_path / "train.csv", rows), "text")
    assert data.classes == ("1", "2", "3", "4")
    assert len(data.train) + len(data.test) == 40


def test_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    rows = "".join(f"text {i},{i % 11}\n" for i in range(110))
    data = load(table(tmp_path / "a.csv", f"text,label\n{rows}"), "text")
    assert data.classes == tuple(str(i) for i in range(11))


def test_a_stray_quote_in_a_tsv_swallows_nothing(tmp_path: Path) -> None:
    rows = "".join(f'"an open quote {i}\tup\nnone {i}\tdown\n' for i in range(10))
    data = load(table(tmp_path / "a.tsv", f"text\tlabel\n{rows}"), "text")
    assert len(data.train) + len(data.test) == 20


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig"])
def test_old_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    text = "text,label\n" + "naïve “film”,schön\nbad,übel\n" * 10
    data = load(table(tmp_path / "a.csv", text.encode(encoding)), "text")
    assert data.classes == ("schön", "übel")


def test_a_text_longer_than_pythons_limit_is_read(tmp_path: Path) -> None:
    rows = f"{'word ' * 40_000},up\nshort,down\n" * 3
    assert load(table(tmp_path / "a.csv", f"text,label\n{rows}"), "text").classes == ("down", "up")


def test_parquet_is_read_or_its_package_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    if importlib.util.find_spec("pyarrow") is None:
        path.write_bytes(b"PAR1")
        with pytest.raises(ImportError, match="pip install pyarrow"):
            load(str(path), "text")
        return
    import pyarrow
    from pyarrow import parquet

    columns = list(zip(*PUBLISHED, strict=True))
    parquet.write_table(pyarrow.table({"review": columns[1], "verdict": columns[2]}), path)
    data = load(str(path), "text")
    assert data.classes == ("down", "up")
    assert "texts in 'review', labels in 'verdict'" in data.layout


def test_a_folder_of_datasets_is_read_or_its_package_named(tmp_path: Path) -> None:
    if importlib.util.find_spec("datasets") is None:
        (tmp_path / "dataset_dict.json").write_text("{}")
        with pytest.raises(ImportError, match="pip install datasets"):
            load(str(tmp_path), "text")
        return
    import datasets

    names = datasets.Features(
        text=datasets.Value("string"), label=datasets.ClassLabel(names=["bad", "good"])
    )
    rows = {"text": [f"some words {i}" for i in range(8)], "label": [i % 2 for i in range(8)]}
    made = datasets.Dataset.from_dict(rows, features=names)
    datasets.DatasetDict(train=made, validation=made).save_to_disk(str(tmp_path / "saved"))
    data = load(str(tmp_path / "saved"), "text")
    assert (data.classes, len(data.train), len(data.test)) == (("bad", "good"), 8, 8)


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no layout that text reads"):
        load(str(tmp_path), "text")


def test_columns_are_found_by_their_names_in_each_table(tmp_path: Path) -> None:
    table(tmp_path / "train.csv", f"Review Text,LABEL\n{ROWS}")
    table(tmp_path / "train_2.csv", "label,note,review text\nup,x,good\n")
    table(tmp_path / "train_ids.csv", "id,label\n0,up\n")  # no column of texts
    table(tmp_path / "test.csv", "label,Review Text\nup,good\n")
    with pytest.warns(DataWarning, match=r"1 problem: .*train_ids\.csv is left out.*'Review Text'"):
        data = load(str(tmp_path), "text")
    assert (len(data.train), len(data.test)) == (21, 1)
    assert data.classes == ("down", "up")


@pytest.mark.parametrize("test", ["id,text\n0,fine\n", "text,label\nfine,-1\n", "text,label\n"])
def test_tests_without_answers_do_not_count(tmp_path: Path, test: str) -> None:
    table(tmp_path / "train.csv", f"text,label\n{ROWS}")
    table(tmp_path / "test.csv", test)
    data = load(str(tmp_path), "text", strict=True)
    assert (len(data.train), len(data.test)) == (16, 4)
    assert "the test split has no labels" in data.layout
    table(tmp_path / "val.csv", "text,label\ngood,up\n")
    data = load(str(tmp_path), "text", strict=True)
    assert (len(data.train), len(data.test)) == (20, 1)


def test_a_row_with_too_many_columns_is_left_out(tmp_path: Path) -> None:
    # a comma that is not quoted moves the label to the next column
    path = table(tmp_path / "a.csv", f"text,label\n{ROWS}good, but long,up\nfine,up,,\n")
    with pytest.warns(DataWarning, match="1 problem: .*row 22: it has 3 columns, the first one 2"):
        data = load(path, "text")
    assert data.classes == ("down", "up")
    assert len(data.train) + len(data.test) == 21


def test_quoted_texts_of_several_lines_are_read_from_tsv(tmp_path: Path) -> None:
    rows = "".join(f'"two\nlines, {i}"\tup\nnone {i}\tdown\n' for i in range(10))
    data = load(table(tmp_path / "a.TSV", f"text\tlabel\r\n{rows}"), "text", strict=True)
    assert len(data.train) + len(data.test) == 20


@pytest.mark.parametrize("name", ["train.txt", "SMSCollection"])
def test_a_file_of_another_ending_is_a_table_if_the_task_is_text(tmp_path: Path, name: str) -> None:
    path = table(tmp_path / name, "".join(f"up\tgood {i}\ndown\tbad {i}\n" for i in range(10)))
    for place in (path, str(tmp_path)) if name == "train.txt" else (path,):
        data = load(place, "text")
        assert data.classes == ("down", "up")
        assert len(data.train) + len(data.test) == 20


def test_an_archive_is_to_be_unpacked(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Unpack it.*Found:\n  a\.zip, a file of 2 bytes"):
        load(table(tmp_path / "a.zip", "PK"), "text")
