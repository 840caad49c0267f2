"""The cache holds whole data sets only, and is made once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from actzip.tasks.data import DataError, cache


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACTZIP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_environment_chooses_the_folder(place: Path) -> None:
    assert cache.folder() == place


def test_without_it_the_users_cache_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACTZIP_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert cache.folder() == tmp_path / "actzip"
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    monkeypatch.setattr("sys.platform", "win32")
    assert cache.folder() == tmp_path / "local" / "actzip"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache.folder() == Path.home() / "Library" / "Caches" / "actzip"


def test_data_are_made_once_and_come_back_equal(place: Path) -> None:
    made = []

    def make() -> dict[str, torch.Tensor]:
        made.append(1)
        return {"a": torch.arange(6, dtype=torch.uint8).view(2, 3), "b": torch.tensor([1, -5])}

    for _ in range(2):
        got = cache.tensors("some-1", make)
        assert sorted(got) == ["a", "b"]
        assert got["a"].dtype == torch.uint8
        assert got["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert got["b"].tolist() == [1, -5]
    assert made == [1]


def test_a_failed_making_leaves_nothing(place: Path) -> None:
    def fail() -> dict[str, torch.Tensor]:
        raise DataError("no network")

    with pytest.raises(DataError, match="no network"):
        cache.tensors("some-1", fail)
    assert not place.exists()


def test_a_failed_writing_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("numpy.save", full)
    with pytest.raises(OSError, match="disk full"):
        cache.tensors("some-1", lambda: {"a": torch.ones(1)})
    assert list(place.iterdir()) == []


def test_another_process_that_was_first_wins(place: Path) -> None:
    def slow() -> dict[str, torch.Tensor]:
        cache.tensors("some-1", lambda: {"a": torch.tensor([1])})
        return {"a": torch.tensor([2])}

    assert cache.tensors("some-1", slow)["a"].tolist() == [1]
    assert [path.name for path in place.iterdir()] == ["some-1"]


def test_a_damaged_file_is_named(place: Path) -> None:
    cache.tensors("some-1", lambda: {"a": torch.arange(100)})
    file = place / "some-1" / "a.npy"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(DataError, match=r"some-1 cannot be read .* remove that folder"):
        cache.tensors("some-1", dict)
