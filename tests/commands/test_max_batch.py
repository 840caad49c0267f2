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
from actzip.tasks.fit import Try

BATCHES = {"plain": 37, "checkpoint": 90, "comet": 0, "actnn": 148}


def fake(config: Config, limit: int) -> Try:
    if config.batch > BATCHES[config.method]:
        return Try(config.batch, False, why="above the limit")
    return Try(config.batch, True, config.batch << 20, 0.5)


def invoke(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(cli.app, ["max-batch", *arguments], env={"COLUMNS": "140"})
    return found.exit_code, found.output


def test_every_methods_largest_batch_and_its_ratio_to_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(max_batch, "attempt", fake)
    out = tmp_path / "batches.json"
    code, output = invoke(
        "--limit", "64MiB", "--within", "0", "--methods", "plain,checkpoint,comet,actnn:bits=3",
        "--model", "resnet8", "--out", str(out),
    )  # fmt: skip
    assert code == 0, output
    assert "plain, batch 16: fits, 16.00 MiB" in output
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
    def stops(config: Config, limit: int) -> Try:
        if config.method == "actnn":
            raise KeyboardInterrupt
        return fake(config, limit)

    monkeypatch.setattr(max_batch, "attempt", stops)
    code, output = invoke("--limit", "64MiB", "--within", "0", "--methods", "plain,actnn")
    assert code == 130
    assert re.search(r"plain +37 ", output)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--limit", "much"], "written like 4GiB"),
        (["--limit", "900TiB"], "that this machine has free"),
        (["--limit", "1MiB", "--methods", "zip"], "allowed are plain, checkpoint"),
        (["--limit", "1MiB", "--task", "paint"], "allowed are classify"),
    ],
)
def test_what_cannot_be_searched_is_refused(arguments: list[str], message: str) -> None:
    code, output = invoke(*arguments)
    assert code == 2
    assert message in re.sub(r"[\s│]+", " ", output)
