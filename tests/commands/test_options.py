"""What people write on the command line, read the same way by every command."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import typer

from actzip.commands import options
from actzip.commands.compare import compare
from actzip.commands.train import train


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("plain", [("plain", {})]),
        ("plain, comet", [("plain", {}), ("comet", {})]),
        ("actnn:bits=3,comet", [("actnn", {"bits": 3}), ("comet", {})]),
        (
            "actnn:bits=3,rounding=dither,actnn:bits=2",
            [("actnn", {"bits": 3, "rounding": "dither"}), ("actnn", {"bits": 2})],
        ),
        ("plain,plain", [("plain", {})]),
    ],
)
def test_commas_separate_methods_and_their_options(
    text: str, found: list[tuple[str, dict[str, object]]]
) -> None:
    assert options.methods(text) == found


def test_no_method_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="separated by commas, got ','"):
        options.methods(",")


def test_numbers_are_each_taken_once() -> None:
    assert options.numbers("2,0,2", "--seeds") == [2, 0]
    with pytest.raises(
        ValueError, match="--seeds are whole numbers separated by commas, got '1-3'"
    ):
        options.numbers("1-3", "--seeds")


def test_given_are_the_settings_that_were_said() -> None:
    params = {"epochs": 3, "batch": None, "size": ["width=8"], "out": Path("x"), "method": "plain"}
    assert options.given(params) == {"epochs": 3, "sizes": {"width": 8}}


def test_a_second_run_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a-2").mkdir()
    assert options.free(tmp_path / "a") == tmp_path / "a-3"
    assert options.free(tmp_path / "b") == tmp_path / "b"


def test_what_cannot_be_done_ends_with_a_message() -> None:
    with pytest.raises(typer.BadParameter, match="no such thing"), options.refusals():
        raise ValueError("no such thing")
    with pytest.raises(typer.Exit), options.refusals():
        raise ImportError("pip install it")


def test_compare_takes_every_option_of_a_run_that_train_takes() -> None:
    own = {"method", "option", "bits", "seed", "state", "resume", "fsdp"}  # of a single run
    shared = set(inspect.signature(train).parameters) - own
    assert shared <= set(inspect.signature(compare).parameters)
