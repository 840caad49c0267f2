"""actzip compare: what is run, what is kept, what is written."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from actzip import cli
from actzip.commands import compare
from actzip.tasks import config
from actzip.tasks.comparison import Run
from actzip.tasks.config import make

TINY = ["--model", "resnet8", "--epochs", "1", "--batch", "64", "--threads", "1", "--side", "8"]
TINY += ["--limit", "128", "--size", "width=8"]


def invoke(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(cli.app, ["compare", *arguments], env={"COLUMNS": "200"})
    return found.exit_code, found.output


def test_methods_and_seeds_are_run_once_and_set_side_by_side(tmp_path: Path) -> None:
    out = tmp_path / "c"
    arguments = [*TINY, "--methods", "plain,lossless", "--out", str(out)]
    code, output = invoke(*arguments)
    assert code == 0, output
    assert output.rstrip().endswith(f"report: {out / 'report.html'}")
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    values = json.loads((out / "compare.json").read_text())
    assert [(run["label"], run["seed"]) for run in values["runs"]] == [
        ("plain", 0),
        ("lossless", 0),
    ]
    plain, lossless = values["rows"]
    assert plain["metric"] == lossless["metric"]
    assert lossless["ratio"] > 1 == plain["ratio"]
    assert values["config"]["model"] == "resnet8"
    assert values["failed"] == {}
    lines = list(csv.DictReader((out / "compare.csv").read_text().splitlines()))
    assert [line["label"] for line in lines] == ["plain", "lossless"]
    assert int(lines[0]["stored_bytes"]) == plain["stored_bytes"]

    code, output = invoke(*arguments[:-1], arguments[-1], "--seeds", "0,1", "--methods", "plain")
    assert code == 0, output
    assert "plain, seed 0: " in output
    assert output.count("was there already") == 1
    (row,) = json.loads((out / "compare.json").read_text())["rows"]
    assert row["seeds"] == [0, 1]
    assert row["spread"] is not None


def test_a_run_that_fails_loses_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = Run.go

    def broken(self: Run, listen: Any) -> Any:
        if self.config.method == "plain":
            raise RuntimeError("it ended before it could answer (out of memory?)")
        return go(self, listen)

    monkeypatch.setattr(Run, "go", broken)
    code, output = invoke(*TINY, "--methods", "plain,lossless", "--out", str(tmp_path / "c"))
    assert code == 1
    assert "plain, seed 0 failed: it ended before it could answer (out of memory?)" in output
    values = json.loads((tmp_path / "c" / "compare.json").read_text())
    assert [row["error"] != "" for row in values["rows"]] == [True, False]
    assert values["rows"][1]["metric"] is not None
    assert "plain, seed 0" in values["failed"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "zip"], "allowed are plain, checkpoint"),
        (["--methods", ","], "separated by commas"),
        (["--methods", "actnn:bits=9"], "an average of 1 to 8, got 9"),
        (["--seeds", "a"], "--seeds are whole numbers"),
        (["--seeds", "-1"], "seed must be a whole number of at least 0"),
        (["--quick", "--task", "lm"], "--quick is classify on digits, got --task lm"),
        (["--batch", "5000"], "1437"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_the_first_run(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = invoke(*arguments)
    assert code == 2
    assert message in re.sub(r"[\s│]+", " ", output)
    assert list(tmp_path.iterdir()) == []


def test_runs_with_other_settings_are_not_mixed_in(tmp_path: Path) -> None:
    arguments = [*TINY, "--methods", "plain", "--out", str(tmp_path)]
    assert invoke(*arguments)[0] == 0
    code, output = invoke(*arguments, "--epochs", "2")
    assert code == 2
    assert "has epochs=1, asked was 2" in re.sub(r"[\s│]+", " ", output)


def test_quick_is_a_few_methods_on_the_digits_and_can_be_changed() -> None:
    def params(**more: Any) -> dict[str, Any]:
        given = {"methods": compare.METHODS, "every": False, "seeds": "0", "quick": True}
        return {**given, "out": Path("x"), **more}

    runs = compare._runs(params())
    assert [run.config.method for run in runs] == ["plain", "checkpoint", "actnn", "acgc", "auto"]
    every = [run.config.method for run in compare._runs(params(every=True))]
    assert every == [*config.BASELINES, "lossless", "actnn", "division", "comet", "acgc", "auto"]
    with pytest.raises(ValueError, match="leave it or --methods out"):
        compare._runs(params(every=True, methods="plain"))
    assert {run.config.data for run in runs} == {"digits"}
    (changed, *_) = compare._runs(params(epochs=1, model="resnet8"))
    assert (changed.config.epochs, changed.config.model) == (1, "resnet8")
    assert changed.config == make(model="resnet8", epochs=1, batch=64, side=24)


def test_all_skips_what_the_machine_is_slow_at_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actzip.tasks.machine.bf16_slowdown", lambda: 9.6)
    monkeypatch.setattr(compare, "ALL", "plain,bf16")
    ran: list[str] = []
    go = Run.go

    def noted(self: Run, listen: Any) -> Any:
        ran.append(self.config.method)
        return go(self, listen)

    monkeypatch.setattr(Run, "go", noted)
    quick = ["--quick", *TINY, "--out"]
    code, output = invoke(*quick, str(tmp_path / "one"), "--all")
    assert code == 0, output
    assert ran == ["plain"]
    why = "in bf16 a step takes 10 times as long as in fp32 on this processor"
    assert f"bf16, seed 0 skipped: {why}" in output
    assert f"bf16 skipped: {why}" in " ".join(output.split())  # below the table, in words
    values = json.loads((tmp_path / "one" / "compare.json").read_text())
    assert [row["error"] for row in values["rows"]] == ["", f"skipped: {why}"]
    assert values["skipped"] == {"bf16, seed 0": why}
    assert values["failed"] == {}

    code, output = invoke(*quick, str(tmp_path / "two"), "--methods", "bf16")
    assert code == 0, output
    assert ran == ["plain", "bf16"]


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(tmp_path: Path) -> None:
    """The real command in a real process, stopped by a real signal to all of it."""
    out = tmp_path / "c"
    command = [sys.executable, "-c", "from actzip.cli import main; main()", "compare", *TINY]
    command += ["--methods", "plain,lossless", "--epochs", "30", "--out", str(out)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        metrics = out / "lossless-seed0" / "metrics.jsonl"
        while child.poll() is None and not (metrics.exists() and metrics.stat().st_size > 300):
            time.sleep(0.01)
        os.killpg(child.pid, signal.SIGINT)
        output, _ = child.communicate(timeout=600)
    assert child.returncode == 130, output
    assert "stopped; the same command with --out" in output
    (row,) = json.loads((out / "compare.json").read_text())["rows"]
    assert row["label"] == "plain"
    assert not (out / "lossless-seed0" / "result.json").exists()
    again = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert again.count("was there already") == 1
    plain, lossless = json.loads((out / "compare.json").read_text())["rows"]
    assert plain["metric"] == lossless["metric"]
