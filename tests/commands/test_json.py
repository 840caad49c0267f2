"""--json: what was found on the output, as JSON and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from actzip import cli
from actzip.commands import max_batch
from actzip.tasks.max_batch_search import Floor, Try

TINY = ["--model", "resnet8", "--batch", "32", "--side", "8", "--threads", "1"]


def printed(*arguments: str) -> Any:
    found = CliRunner().invoke(cli.app, [*arguments, "--json"], env={"COLUMNS": "140"})
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_train(tmp_path: Path) -> None:
    more = ["--limit", "32", "--epochs", "1", "--method", "plain", "--out", str(tmp_path / "run")]
    (result,) = printed("train", *TINY, *more)["results"]
    assert result == json.loads((tmp_path / "run" / "result.json").read_text())


def test_compare(tmp_path: Path) -> None:
    more = ["--limit", "32", "--epochs", "1", "--methods", "plain", "--out", str(tmp_path)]
    assert printed("compare", *TINY, *more) == json.loads((tmp_path / "compare.json").read_text())


def test_profile() -> None:
    found = printed("profile", *TINY, "--methods", "plain,actnn")["found"]
    assert [each["label"] for each in found] == ["plain", "actnn"]
    assert found[1]["ratio"] == found[1]["raw_bytes"] / found[1]["stored_bytes"] > 2


def test_max_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(max_batch, "floor", lambda config: Floor(1, 1))
    monkeypatch.setattr(
        max_batch,
        "attempt",
        lambda config, limit, world: Try(config.batch, config.batch <= 5, 1, 1.0),
    )
    values = printed("max-batch", "--memory", "1MiB", "--methods", "plain", "--within", "0")
    assert [each["batch"] for each in values["found"]] == [5]
