"""actzip max-batch: what is tried, what is told, what is written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from actzip import cli
from actzip.commands import max_batch
from actzip.tasks.config import Config
from actzip.tasks.max_batch_search import Floor, StepError, Try

BATCHES = {"plain": 37, "checkpoint": 90, "comet": 0, "actnn": 148}


def fake(config: Config, limit: int, world: int) -> Try:
    if config.batch > BATCHES[config.method]:
        return Try(config.batch, False, why="above the limit")
    return Try(config.batch, True, config.batch << 20, 0.5)


@pytest.fixture(autouse=True)
def floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(max_batch, "floor", lambda config: Floor(30 << 20, 2 << 20))


def invoke(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(cli.app, ["max-batch", *arguments], env={"COLUMNS": "140"})
    return found.exit_code, found.output


def test_every_methods_largest_batch_and_its_ratio_to_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(max_batch, "attempt", fake)
    out = tmp_path / "batches.json"
    code, output = invoke(
        "--memory", "64MiB", "--within", "0", "--methods", "plain,checkpoint,comet,actnn:bits=3",
        "--model", "resnet8", "--out", str(out),
    )  # fmt: skip
    assert code == 0, output
    assert "32.00 MiB are held before the first step: 30.00 MiB by Python and its" in output
    assert "plain, batch 16: fits, 16.00 MiB, tried in 0.0 s" in output
    assert "plain, batch 38: does not fit: above the limit" in output
    assert re.search(r"plain +37 +1.00× +37.00 MiB +500 ms +74.0", output)
    assert re.search(r"checkpoint +90 +2.43× +90.00 MiB", output)
    assert re.search(r"comet +none", output)
    assert re.search(r"actnn:bits=3 +148 +4.00×", output)
    values = json.loads(out.read_text())
    assert values["limit"] == 64 << 20
    assert [each["batch"] for each in values["found"]] == [37, 90, 0, 148]
    assert [each["ratio"] for each in values["found"]] == [1, pytest.approx(90 / 37), 0, 4]
    assert values["found"][1]["tries"][0]["batch"] == 37  # begins where plain ended


def test_ctrl_c_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(config: Config, limit: int, world: int) -> Try:
        if config.method == "actnn":
            raise KeyboardInterrupt
        return fake(config, limit, world)

    monkeypatch.setattr(max_batch, "attempt", stops)
    code, output = invoke("--memory", "64MiB", "--within", "0", "--methods", "plain,actnn")
    assert code == 130
    assert re.search(r"plain +37 ", output)


def test_a_failure_that_is_not_memory_ends_the_search_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []

    def fails(config: Config, limit: int, world: int) -> Try:
        tried.append(config.method)
        if config.method == "actnn":
            raise StepError("ValueError: no such thing")
        return fake(config, limit, world)

    monkeypatch.setattr(max_batch, "attempt", fails)
    arguments = ["--memory", "64MiB", "--within", "0", "--methods", "plain,actnn,comet"]
    code, output = invoke(*arguments)
    assert code == 1
    assert "actnn: a step failed, not for memory: ValueError: no such thing" in output
    assert re.search(r"plain +37 ", output), "what was found before is shown"
    assert tried.count("actnn") == 1
    assert "comet" not in tried


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "much"], "a text like '4GiB'"),
        (["--memory", "0"], "at least a byte, got '0'"),
        (["--memory", "31MiB"], "--memory is 31.00 MiB: choose more"),
        (["--memory", "64MiB", "--out", "/dev/null/x"], "/dev/null cannot be written"),
        (["--memory", "64MiB", "--out", "."], "--out . is a folder"),
        (["--memory", "900TiB"], "that this machine has free"),
        (["--memory", "64MiB", "--methods", "zip"], "allowed are plain, checkpoint"),
        (["--memory", "64MiB", "--task", "paint"], "allowed are classify"),
    ],
)
def test_what_cannot_be_searched_is_refused(arguments: list[str], message: str) -> None:
    code, output = invoke(*arguments)
    assert code == 2
    assert message in re.sub(r"[\s│]+", " ", output)


def test_under_torchrun_the_first_process_searches_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worlds: list[int] = []

    def counts(config: Config, limit: int, world: int) -> Try:
        worlds.append(world)
        return fake(config, limit, world)

    monkeypatch.setattr(max_batch, "attempt", counts)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert invoke("--memory", "64MiB", "--methods", "plain") == (0, "")
    assert worlds == []
    monkeypatch.setenv("RANK", "0")
    code, output = invoke("--memory", "64MiB", "--methods", "plain")
    assert code == 0, output
    assert set(worlds) == {2}
    assert "2 processes train together; all figures are those of each." in output
