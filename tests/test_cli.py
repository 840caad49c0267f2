"""The command line: what people type, what they read."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import actzip
from actzip import cli
from actzip.commands import train
from actzip.commands.progress import figures
from actzip.commands.table import table
from actzip.tasks.catalogue import TASKS
from actzip.tasks.config import make
from actzip.tasks.result import Progress, Result
from actzip.tasks.step_memory import Cost

runner = CliRunner()
TINY = ["--model", "resnet8", "--epochs", "1", "--batch", "64", "--threads", "1", "--side", "8"]


def invoke(*arguments: str) -> tuple[int, str]:
    done = runner.invoke(cli.app, list(arguments), env={"COLUMNS": "200"})
    return done.exit_code, done.output


def test_version_is_printed() -> None:
    assert invoke("--version") == (0, f"actzip {actzip.__version__}\n")


def test_the_package_runs_as_a_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["actzip", "--version"])
    with pytest.raises(SystemExit) as done:
        runpy.run_module("actzip", run_name="__main__")
    assert done.value.code == 0
    assert capsys.readouterr().out == f"actzip {actzip.__version__}\n"


def test_without_its_packages_the_command_says_what_to_install() -> None:
    code = """
import builtins, sys
real = builtins.__import__
def without_typer(name, *more, **options):
    if name.partition(".")[0] == "typer":
        raise ModuleNotFoundError("No module named 'typer'", name="typer")
    return real(name, *more, **options)
builtins.__import__ = without_typer
from actzip.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "The command line needs more packages: pip install 'actzip[bench]'\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "zip"], "allowed are plain, checkpoint, bf16, lossless"),
        (["--task", "paint"], "allowed are classify, detect, segment, text, lm"),
        (["--model", "alexnet"], "allowed are resnet8"),
        (["--epochs", "0"], "epochs"),
        (["--batch", "5000"], "1437"),
        (["--data", "nowhere"], "nowhere"),
        (["--method", "lossless", "--bits", "2"], "'lossless' has no option bits"),
        (["--method", "lossless:bits"], "name=value, got 'bits'"),
        (["--option", "bits=2"], "with several write actnn:bits=2"),
        (["--size", "depth=2"], "allowed are width"),
        (["--resume", "nowhere"], "no saved state at nowhere"),
        (["--state", "x.pt"], "--state is for one method"),
        (["--size", "width=0"], "must be a whole number, 1 or more, got 0; the default is 16"),
        (["--size", "width=abc"], "must be a whole number, 1 or more, got 'abc'"),
        (["--size", "width=True"], "must be a whole number, 1 or more, got True"),
        (["--size", "width=1.5"], "must be a whole number, 1 or more, got 1.5"),
        (["--model", "vgg", "--size", "dropout=1"], "must be a number from 0 to below 1, got 1"),
        (["--size", "width=9999999999"], "resnet20 with width=9999999999 cannot be built"),
        (["--model", "vgg", "--size", "stages=9", "--side", "8"], "does not run on digits"),
        (["--threads", "100000000"], "threads must be at most 1024"),
        (["--seed", "99999999999999999999"], "seed must be at most"),
        (["--out", "/dev/null/x"], "/dev/null/x/plain cannot be written (Not a directory)"),
        (["--out", "/dev/null"], "--out /dev/null is no folder"),
        (["--method", "plain", "--state", "/dev/null/x"], "/dev/null cannot be written"),
        (["--method", "plain", "--state", "/"], "is a folder; name a file in it"),
        (["--method", "actnn", "--option", "bits=abc"], "bits"),
        (["--method", "comet", "--option", "error=abc"], "error"),
        (["--resume", __file__], "is no saved state of actzip train, or it is damaged"),
    ],
)
def test_a_wrong_option_ends_before_training_and_says_what_is_allowed(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = invoke("train", *arguments)
    assert code == 2
    assert message in re.sub(r"[\s│]+", " ", output)
    assert "Traceback" not in output
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_ends_a_run_with_a_sentence_before_its_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch.save", full)
    code, output = invoke("train", *TINY, "--method", "plain", "--out", str(tmp_path / "run"))
    assert code == 1
    assert "the plain run failed: No space left on device; nothing was saved yet\n" in output
    assert list((tmp_path / "run").iterdir()) == []


def test_a_step_without_memory_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*args: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: 99 bytes\nframe #0")

    monkeypatch.setattr("actzip.tasks.trainer.Trainer.step", none_left)
    code, output = invoke("train", *TINY, "--method", "plain", "--out", str(tmp_path / "run"))
    assert code == 1
    text = "the plain run failed: out of memory (DefaultCPUAllocator: can't allocate memory: 99 "
    assert text + "bytes); choose a smaller --batch" in output
    assert f"actzip train --resume {tmp_path / 'run'}" in output


@pytest.mark.parametrize("command", ["train", "compare", "max-batch"])
def test_checkpoint_is_a_method_and_limit_a_number_of_examples(command: str) -> None:
    """The state of a run is called state, and a limit of memory --memory."""
    code, output = invoke(command, "--help")
    said = re.sub(r"\x1b\[[0-9;]*m|[\s│]+", " ", output)
    assert code == 0
    assert "--checkpoint" not in said
    assert not re.search(r"checkpoint(?!, ?(bf16|actnn))", said)
    assert ("--memory" in said) is (command == "max-batch")
    assert ("Most examples of a split." in said) is (command != "max-batch")
    assert ("--state" in said) is (command == "train")


def result(method: str, seconds: float, stored: int) -> Result:
    cost = Cost(8 << 20, stored, stored, 9 << 20)
    tests = [{"epoch": 1, "top1": 0.975}]
    config = make(method=method)
    return Result(config, {"top1": 0.975}, tests, [0.125], seconds, 60.0, cost, 10 << 20)


def shown(results: list[Result]) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table(results))
    return captured.get()


def cells(text: str, row: str) -> list[str]:
    line = next(line for line in text.splitlines() if row in line)
    return [part.strip() for part in re.split("[│┃]", line) if part.strip()][1:]


def test_the_table_sets_methods_side_by_side() -> None:
    text = shown([result("plain", 0.1, 8 << 20), result("lossless", 0.125, 2 << 20)])
    assert cells(text, "resnet20, batch 64") == ["plain", "lossless"]
    assert cells(text, "test ") == ["top1 97.5%", "top1 97.5%"]
    assert cells(text, "step time") == ["100 ms", "125 ms (1.25×)"]
    assert cells(text, "saved ") == ["8.00 MiB", "2.00 MiB"]
    assert cells(text, "saved, ratio") == ["1.00×", "4.00×"]
    assert cells(text, "live peak") == ["9.00 MiB", "9.00 MiB"]
    assert cells(text, "resident peak") == ["10.00 MiB", "10.00 MiB"]


def test_without_a_plain_run_step_times_stand_alone() -> None:
    text = shown([result("lossless", 0.125, 2 << 20)])
    assert cells(text, "step time") == ["125 ms"]


def test_the_bar_shows_what_is_known() -> None:
    at = Progress(3, 9, 1, 0.5, {}, 0.25, None, None)
    assert figures(at, TASKS["classify"]) == "loss 0.500 · 250 ms"
    at = Progress(3, 9, 1, 0.5, {"perplexity": 7.125}, 0.25, 3 << 20, 1 << 30)
    text = "loss 0.500 · perplexity 7.12 · 250 ms · saved 3.00 MiB · resident 1.00 GiB"
    assert figures(at, TASKS["lm"]) == text


def test_train_runs_every_method_and_lossless_ends_as_plain_does(tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, output = invoke("train", *TINY, "--out", str(out))
    assert code == 0, output
    plain, lossless, fixed = cells(output, "last loss")
    assert plain == lossless
    assert abs(float(fixed) - float(plain)) < 0.5
    plain, lossless, _ = cells(output, "test ")
    assert plain == lossless
    saved = json.loads((out / "results.json").read_text())["results"]
    assert [run["config"]["method"] for run in saved] == ["plain", "lossless", "fixed"]
    assert saved[2]["cost"]["ratio"] > 4
    assert (out / "fixed" / "metrics.jsonl").read_text().count("loss") == 22


def test_one_method_writes_its_folder_and_resumes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = invoke("train", *TINY, "--method", "lossless")
    assert code == 0, output
    folder = tmp_path / "runs" / "classify-resnet8-lossless"
    assert {path.name for path in folder.iterdir()} == {
        "state.pt",
        "metrics.jsonl",
        "report.html",
        "result.json",
    }
    before = json.loads((folder / "result.json").read_text())
    code, output = invoke("train", "--resume", str(folder), "--batch", "64")
    assert code == 0, output
    after = json.loads((folder / "result.json").read_text())
    assert after["losses"] == before["losses"]
    code, output = invoke("train", "--resume", str(folder), "--batch", "32")
    assert code == 2
    assert "has batch=64, asked was 32" in re.sub(r"[\s│]+", " ", output)


def test_a_folder_with_a_run_in_it_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    code, output = invoke("train", "--out", str(tmp_path))
    assert code == 2
    assert "is there already" in output


def test_a_run_that_fails_says_which_and_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        (tmp_path / "runs" / "classify-resnet20-methods" / "plain").mkdir(parents=True)
        raise RuntimeError("Traceback: many lines\nValueError: no luck")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "call_fresh", broken)
    code, output = invoke("train", "--side", "8")
    assert code == 1
    assert "the plain run failed: ValueError: no luck; nothing was saved yet\n" in output
    assert "many lines" not in output
    (written,) = tmp_path.glob("runs/*/plain/error.txt")
    assert written.read_text() == "Traceback: many lines\nValueError: no luck"


def test_ctrl_c_leaves_a_saved_state_that_ends_as_an_undisturbed_run(tmp_path: Path) -> None:
    """The real command in a real process, stopped by a real signal."""
    arguments = ["--model", "resnet8", "--epochs", "2", "--batch", "64", "--threads", "1"]
    arguments += ["--side", "16", "--method", "fixed"]
    command = [sys.executable, "-c", "from actzip.cli import main; main()", "train"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run([*command, *arguments, "--out", str(whole)], check=True, capture_output=True)
    with subprocess.Popen(
        [*command, *arguments, "--out", str(cut)], stdout=subprocess.PIPE, text=True
    ) as child:
        metrics = cut / "metrics.jsonl"
        while child.poll() is None and not (metrics.exists() and metrics.stat().st_size > 500):
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGINT)
        output, _ = child.communicate(timeout=120)
    assert child.returncode == 130, output
    assert f"actzip train --resume {cut}" in output.replace("\n", "")
    assert not (cut / "result.json").exists()
    subprocess.run([*command, "--resume", str(cut)], check=True, capture_output=True)
    one, two = (json.loads((each / "result.json").read_text()) for each in (whole, cut))
    assert one["losses"] == two["losses"]
    assert one["tests"] == two["tests"]
