"""Saved states are whole or absent, hold data only, and say what is wrong with them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Any

import pytest
import torch

from actzip.tasks.run_folder import (
    METRICS,
    NEW,
    STATE,
    Journal,
    check_place,
    read_state,
    replace_text,
)


def state(**values: Any) -> dict[str, Any]:
    """The least that a saved state holds."""
    parts = ("config", "trainer", "history", "shuffling", "augmenting")
    return {**dict.fromkeys(parts), **values}


def test_a_saved_state_is_read_back_from_file_and_folder(tmp_path: Path) -> None:
    Journal(tmp_path).save(state(a=torch.arange(3), b=[1.5, None]))
    for place in (tmp_path, tmp_path / STATE):
        read = read_state(place)
        assert read["a"].tolist() == [0, 1, 2]
        assert read["b"] == [1.5, None]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("count", [3, 3_000_000])
def test_a_full_disk_leaves_the_old_saved_state_and_nothing_else(
    tmp_path: Path, count: int
) -> None:
    journal = Journal(tmp_path)
    journal.save(state(a=1))
    (tmp_path / (STATE + NEW)).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        journal.save(state(a=torch.zeros(count)))
    assert read_state(tmp_path)["a"] == 1
    assert [path.name for path in tmp_path.iterdir()] == [STATE]


def test_an_error_that_torchs_writer_hides_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(state: object, file: IO[bytes]) -> None:
        try:
            raise OSError(27, "File too large")
        except OSError:
            raise RuntimeError("unexpected pos 704 vs 598")  # noqa: B904

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="File too large"):
        Journal(tmp_path).save(state())
    assert list(tmp_path.iterdir()) == []


def test_a_saved_state_is_on_the_disk_before_it_replaces_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    (tmp_path / METRICS).write_text("")
    happened: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(file: int) -> None:
        happened.append(f"sync {os.path.basename(os.readlink(f'/proc/self/fd/{file}'))}")
        fsync(file)

    def replaced(a: Path, b: Path) -> None:
        happened.append(f"{a.name} to {b.name}")
        replace(a, b)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    journal.save(state(a=1))
    assert happened == [
        f"sync {METRICS}",
        f"sync {STATE}{NEW}",
        f"{STATE}{NEW} to {STATE}",
        f"sync {tmp_path.name}",
    ]


def test_lines_that_a_kill_cut_off_or_that_come_later_are_dropped(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.save(state())
    good = [f'{{"step": {step}, "loss": 0.5}}\n' for step in (1, 2, 3)]
    (tmp_path / METRICS).write_bytes("".join(good).encode() + b'{"step": 2, "lo\xff\x00')
    journal.start(2, state)
    journal.line(step=3, loss=0.25)
    lines = (tmp_path / METRICS).read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"step": 1, "loss": 0.5},
        {"step": 2, "loss": 0.5},
        {"step": 3, "loss": 0.25},
    ]


def test_a_run_that_begins_has_a_saved_state_at_once(tmp_path: Path) -> None:
    Journal(tmp_path / "run").start(0, lambda: state(a=5))
    assert read_state(tmp_path / "run")["a"] == 5


def test_a_place_that_cannot_be_written_is_told_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"file.run cannot be written \(Not a directory\)"):
        check_place(tmp_path / "file" / "run")
    check_place(tmp_path / "a" / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"new cannot be written \(No space left on device\)"):
        check_place(tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_without_a_folder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    journal = Journal(None)
    journal.start(0, dict)
    journal.line(step=1)
    journal.save({"a": 1})
    journal.result({"a": 1})
    assert list(tmp_path.iterdir()) == []


def test_a_saved_state_elsewhere(tmp_path: Path) -> None:
    place = tmp_path / "else" / "where.pt"
    Journal(tmp_path / "run", place).save(state(a=1))
    assert read_state(place)["a"] == 1


@pytest.mark.parametrize(
    "content", [None, b"nonsense", b"", {"version": 7}, [1], {"model": {}, "version": 1}]
)
def test_what_is_no_saved_state_is_refused(tmp_path: Path, content: object) -> None:
    path = tmp_path / STATE
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(ValueError, match="no saved state") as said:
        read_state(path)
    assert "\n" not in str(said.value)


def test_another_version_is_named(tmp_path: Path) -> None:
    torch.save(state(version=7), tmp_path / STATE)
    with pytest.raises(ValueError, match="it has version 7, wanted is 1"):
        read_state(tmp_path)


def test_a_saved_state_with_code_in_it_is_refused(tmp_path: Path) -> None:
    torch.save({"version": 1, "a": Path("x")}, tmp_path / STATE)
    with pytest.raises(ValueError, match="is no saved state of actzip train"):
        read_state(tmp_path)


def test_text_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    replace_text(path, "one")
    replace_text(path, "two")
    assert path.read_text() == "two"
    assert list(tmp_path.iterdir()) == [path]
