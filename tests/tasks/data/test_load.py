"""load: names before paths, and requests that make no sense are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from actzip.tasks import digits
from actzip.tasks.data import BUILTIN, DataError, load
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
    ],
)
def test_what_is_not_there_is_said_with_what_is(name: str, task: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(name, task)


def test_a_name_goes_before_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load("digits", "classify", side=8).classes == tuple("0123456789")
    with pytest.raises(DataError, match="0 class folders"):
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


def test_a_data_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="no built-in name"):
        load("no-such", "classify")
