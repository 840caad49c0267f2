"""The command line: what people type, what they read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import actzip
from actzip import cli
from actzip.tasks.classify import Config, Cost, Result

runner = CliRunner()


def test_version_is_printed() -> None:
    done = runner.invoke(cli.app, ["--version"])
    assert done.exit_code == 0
    assert done.output == f"actzip {actzip.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "zip"], "allowed are plain, lossless"),
        (["--model", "alexnet"], "allowed are resnet8"),
        (["--epochs", "0"], "epochs"),
        (["--batch", "5000"], "1437"),
    ],
)
def test_a_wrong_option_ends_before_training_and_says_what_is_allowed(
    arguments: list[str], message: str
) -> None:
    done = runner.invoke(cli.app, ["train", *arguments], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert message in done.output


def result(method: str, seconds: float, stored: int) -> Result:
    cost = Cost(8 << 20, stored, (8 << 20) / stored, 9 << 20)
    return Result(Config(method), 0.975, 0.125, seconds, cost, 10 << 20)


def shown(results: list[Result]) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(cli.table(results))
    return captured.get()


def cells(text: str, row: str) -> list[str]:
    line = next(line for line in text.splitlines() if row in line)
    return [part.strip() for part in re.split("[│┃]", line) if part.strip()][1:]


def test_the_table_sets_methods_side_by_side() -> None:
    text = shown([result("plain", 0.1, 8 << 20), result("lossless", 0.125, 2 << 20)])
    assert cells(text, "resnet20, batch 64") == ["plain", "lossless"]
    assert cells(text, "test accuracy") == ["97.50%", "97.50%"]
    assert cells(text, "step time") == ["100 ms", "125 ms (1.25×)"]
    assert cells(text, "saved ") == ["8.00 MiB", "2.00 MiB"]
    assert cells(text, "saved, ratio") == ["1.00×", "4.00×"]
    assert cells(text, "live peak") == ["9.00 MiB", "9.00 MiB"]
    assert cells(text, "resident peak") == ["10.00 MiB", "10.00 MiB"]


def test_without_a_plain_run_step_times_stand_alone() -> None:
    text = shown([result("lossless", 0.125, 2 << 20)])
    assert cells(text, "step time") == ["125 ms"]


def test_train_runs_every_method_and_lossless_ends_as_plain_does(tmp_path: Path) -> None:
    out = tmp_path / "train.json"
    tiny = ["--model", "resnet8", "--epochs", "1", "--batch", "512", "--threads", "1"]
    done = runner.invoke(cli.app, ["train", *tiny, "--out", str(out)], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    plain, lossless, fixed = cells(done.output, "last loss")
    assert plain == lossless
    assert abs(float(fixed) - float(plain)) < 0.5
    plain, lossless, _ = cells(done.output, "test accuracy")
    assert plain == lossless
    saved = json.loads(out.read_text())["results"]
    assert [run["config"]["method"] for run in saved] == ["plain", "lossless", "fixed"]
    assert saved[2]["cost"]["ratio"] > 8


def test_an_out_file_that_cannot_be_written_fails_before_training(tmp_path: Path) -> None:
    done = runner.invoke(cli.app, ["train", "--out", str(tmp_path / "no" / "x.json")])
    assert done.exit_code == 2
    assert "there is no folder" in done.output


def test_a_run_that_fails_says_which_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("exit code -9")

    monkeypatch.setattr(cli, "call_fresh", broken)
    done = runner.invoke(cli.app, ["train"])
    assert done.exit_code == 1
    assert "the plain run failed: exit code -9" in done.output
