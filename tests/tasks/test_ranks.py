"""Two processes train what one trains, stop together, and go on bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_data import tiny
from torch.distributed.tensor import DTensor

from actzip.tasks.config import Config, make
from actzip.tasks.data import DataWarning
from actzip.tasks.engine import Loop, load
from actzip.tasks.ranks import Ranks, joined
from actzip.tasks.result import Progress
from actzip.tasks.run_folder import Journal, read_state
from actzip.tasks.trainer import Part
from processes import in_two_processes


def config(**more: Any) -> Config:
    sizes = {"width": 16, "depth": 1, "heads": 2, "dropout": more.pop("dropout", 0.0)}
    return make("lm", **{"epochs": 2, "batch": 8, "threads": 1, "sizes": sizes, **more})


def loop(made: Config, out: Path, ranks: Ranks, **more: Any) -> Loop:
    journal = Journal(out if ranks.first else None)
    return Loop(made, tiny("lm"), journal, ranks=ranks, **more)


def _trains(rank: int, out: Path, made: Config, sharded: bool) -> None:
    ranks = joined(sharded)
    assert ranks == Ranks(rank, 2, sharded)
    run = loop(made, out, ranks)
    weights = list(run.trainer.model.parameters())
    assert all(isinstance(each, DTensor) for each in weights) is sharded
    run.run()
    one, two = ranks.gathered(run.trainer.state_dict()["model"])
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(("accumulate", "sharded"), [(1, False), (2, False), (2, True)])
def test_two_processes_end_where_one_does(tmp_path: Path, accumulate: int, sharded: bool) -> None:
    made = config(accumulate=accumulate)
    in_two_processes(tmp_path, _trains, tmp_path / "two", made, sharded)
    loop(made, tmp_path / "one", Ranks()).run()
    one, two = (read_state(tmp_path / name) for name in ("one", "two"))
    assert len(two["history"]["losses"]) == 12
    losses = [torch.tensor(each["history"]["losses"]) for each in (one, two)]
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
    for name, value in one["trainer"]["model"].items():
        torch.testing.assert_close(two["trainer"]["model"][name], value, rtol=1e-3, atol=1e-4)
    lines = (tmp_path / "two" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines if "loss" in line] == list(range(1, 13))


def _stops_and_resumes(rank: int, root: Path, made: Config, sharded: bool) -> None:
    ranks = joined(sharded)
    whole = loop(made, root / "whole", ranks)
    expected = whole.run()

    def at(progress: Progress) -> None:
        if progress.step == 4 and rank == 1:  # Ctrl-C reaches one of them
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        loop(made, root / "cut", ranks, notify=at).run()
    again = loop(made, root / "cut", ranks)
    ranks.any(False)  # the first has written its saved state before the second reads it
    again.load_state_dict(read_state(root / "cut"))
    assert len(again.history.losses) == 4
    assert again.run().losses == expected.losses
    ours, theirs = again.trainer.state_dict()["model"], whole.trainer.state_dict()["model"]
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("sharded", [False, True])
def test_a_run_of_two_that_was_stopped_resumes_bit_for_bit(tmp_path: Path, sharded: bool) -> None:
    made = config(dropout=0.2, method="actnn")
    in_two_processes(tmp_path, _stops_and_resumes, tmp_path, made, sharded)
    alone = loop(made, tmp_path / "alone", Ranks())
    with pytest.raises(ValueError, match="is of 2 processes, this run has 1"):
        alone.load_state_dict(read_state(tmp_path / "cut"))


def test_one_process_has_nobody_to_share_its_weights_with() -> None:
    with pytest.raises(ValueError, match=r"this is one; start them with: torchrun"):
        joined(sharded=True)


def test_a_batch_that_cannot_be_dealt_out_is_refused() -> None:
    with pytest.raises(ValueError, match="a batch of 9 cannot be dealt out to 2 processes"):
        Ranks(0, 2).check(9, 1)
    with pytest.raises(ValueError, match=r"in accumulate=3 parts .* choose a multiple of 6"):
        Ranks(0, 2).check(9, 3)
    Ranks(0, 2).check(12, 3)


def test_every_example_is_computed_by_one_process() -> None:
    part = Part(torch.arange(6), list("abcdef"))
    dealt = [Ranks(rank, 2).own(part) for rank in range(2)]
    assert [each.inputs.tolist() for each in dealt] == [[0, 2, 4], [1, 3, 5]]
    assert [each.targets for each in dealt] == [["a", "c", "e"], ["b", "d", "f"]]


def test_the_command_line_under_torchrun_writes_one_run(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", "2", "-m", "actzip", "train", "--threads", "1"]
    model = ["--model", "vit", "--size", "depth=1", "--size", "width=16", "--side", "8"]
    run = ["--limit", "64", "--batch", "16", "--epochs", "1", "--method", "fixed", "--fsdp"]
    environment = {**os.environ, "COLUMNS": "120"}
    done = subprocess.run(
        [*torchrun, *model, *run, "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("report: ") == 1
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines if "loss" in line] == [1, 2, 3, 4]


@pytest.mark.parametrize("command", ["compare", "profile"])
def test_other_commands_are_for_one_process(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from actzip import cli

    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = CliRunner().invoke(cli.app, command.split(), env={"COLUMNS": "160"})
    assert done.exit_code == 2
    assert "is for one process; torchrun is for `actzip train`" in done.output


@pytest.mark.parametrize("local", ["0", "1"])
def test_what_all_processes_find_is_told_by_one(
    local: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from actzip import cli

    (tmp_path / "a.csv").write_text("text,label\n,up\n" + "good,up\nbad,down\n" * 4)
    monkeypatch.setenv("LOCAL_RANK", local)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load(make("text", data=str(tmp_path / "a.csv"), batch=2))
    assert len([each for each in caught if each.category is DataWarning]) == 1 - int(local)
    done = CliRunner().invoke(cli.app, ["train", "--task", "paint"], env={"COLUMNS": "160"})
    assert done.exit_code == 2
    assert ("allowed are classify" in done.output) is (local == "0")
