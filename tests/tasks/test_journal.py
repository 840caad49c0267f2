"""Checkpoints are whole or absent, hold data only, and say what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from actzip.tasks.journal import CHECKPOINT, Journal, read_checkpoint, replace_text


def test_a_checkpoint_is_read_back_from_file_and_folder(tmp_path: Path) -> None:
    Journal(tmp_path).save({"a": torch.arange(3), "b": [1.5, None]})
    for place in (tmp_path, tmp_path / CHECKPOINT):
        state = read_checkpoint(place)
        assert state["a"].tolist() == [0, 1, 2]
        assert state["b"] == [1.5, None]


def test_a_failed_save_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    journal.save({"a": 1})

    def full(state: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="disk full"):
        journal.save({"a": 2})
    assert read_checkpoint(tmp_path)["a"] == 1


def test_without_a_folder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    journal = Journal(None)
    journal.start(0)
    journal.line(step=1)
    journal.save({"a": 1})
    journal.result({"a": 1})
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_elsewhere(tmp_path: Path) -> None:
    place = tmp_path / "else" / "where.pt"
    Journal(tmp_path / "run", place).save({"a": 1})
    assert read_checkpoint(place)["a"] == 1


@pytest.mark.parametrize("content", [None, b"nonsense", {"version": 7}, [1]])
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, content: object) -> None:
    path = tmp_path / CHECKPOINT
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(ValueError, match="no checkpoint"):
        read_checkpoint(path)


def test_a_checkpoint_with_code_in_it_is_refused(tmp_path: Path) -> None:
    torch.save({"version": 1, "a": Path("x")}, tmp_path / CHECKPOINT)
    with pytest.raises(ValueError, match="is no checkpoint of actzip train"):
        read_checkpoint(tmp_path)


def test_text_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    replace_text(path, "one")
    replace_text(path, "two")
    assert path.read_text() == "two"
    assert list(tmp_path.iterdir()) == [path]
