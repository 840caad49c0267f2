"""The loop: it learns, repeats itself, resumes bit for bit, and tells what happened."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_data import tiny

from actzip.tasks import engine
from actzip.tasks.catalogue import TASKS
from actzip.tasks.config import Config, make
from actzip.tasks.engine import Loop
from actzip.tasks.result import Progress, Result
from actzip.tasks.run_folder import STATE, Journal, read_state

#: small models that learn the tiny data of their task in seconds
TINY: dict[str, dict[str, Any]] = {
    "classify": {"model": "resnet8", "sizes": {"width": 8}, "rate": 0.05},
    "detect": {
        "sizes": {"width": 8, "depth": 1, "pyramid": 16, "tower": 1},
        "rate": 5e-3,
        "epochs": 20,
    },
    "segment": {"sizes": {"width": 8, "levels": 2}, "rate": 1e-2},
    "text": {"model": "encoder", "sizes": {"width": 16, "depth": 1, "heads": 2}, "rate": 1e-2},
    "lm": {"sizes": {"width": 32, "depth": 1, "heads": 2}, "rate": 2e-2, "epochs": 8},
}


def config(task: str = "classify", **more: Any) -> Config:
    return make(task, **{"epochs": 4, "batch": 8, "threads": 1, **TINY[task], **more})


def loop(made: Config, out: Path | None = None, **more: Any) -> Loop:
    return Loop(made, tiny(made.task), Journal(out), **more)


def weights(run: Loop) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in run.trainer.model.state_dict().items()}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


@pytest.mark.parametrize(
    ("task", "metric", "reached"),
    [
        ("classify", "top1", 0.9),
        ("detect", "map50", 0.5),
        ("segment", "miou", 0.7),
        ("text", "top1", 0.9),
        ("lm", "perplexity", 2.0),
    ],
)
def test_every_task_learns_its_tiny_data(task: str, metric: str, reached: float) -> None:
    result = loop(config(task)).run()
    assert TASKS[task].metric == metric
    if TASKS[task].better == "lower":
        assert result.metric < reached
    else:
        assert result.metric > reached
    assert result.losses[-1] < 0.7 * result.losses[0]


@pytest.mark.parametrize("task", TASKS)
def test_lossless_trains_bit_for_bit_like_plain(task: str) -> None:
    plain = loop(config(task, epochs=1)).run()
    lossless = loop(config(task, epochs=1, method="lossless")).run()
    assert (lossless.losses, lossless.tests) == (plain.losses, plain.tests)
    assert lossless.cost.raw_bytes == plain.cost.raw_bytes == plain.cost.stored_bytes
    assert lossless.cost.stored_bytes < plain.cost.stored_bytes


class Stopped(Exception):
    pass


def interrupt(made: Config, out: Path, step: int) -> None:
    """Run until Ctrl-C at `step`."""

    def at(progress: Progress) -> None:
        if progress.step == step:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        loop(made, out, notify=at).run()


@pytest.mark.parametrize(
    ("task", "more"),
    [
        ("classify", {"method": "fixed"}),
        ("classify", {"method": "plain", "schedule": "cosine", "optimizer": "adam"}),
        ("text", {"method": "fixed", "accumulate": 2}),
        ("lm", {"method": "checkpoint", "schedule": "constant"}),
    ],
)
@pytest.mark.parametrize("step", [1, 6, 9])
def test_a_run_stopped_by_ctrl_c_resumes_bit_for_bit(
    task: str, more: dict[str, Any], step: int, tmp_path: Path
) -> None:
    made = config(task, epochs=2, **more)  # 6 steps an epoch
    whole = loop(made)
    expected = whole.run()
    interrupt(made, tmp_path, step)
    again = loop(made, tmp_path)
    again.load_state_dict(read_state(tmp_path))
    result = again.run()
    assert result.losses == expected.losses
    assert result.tests == expected.tests
    assert_same(weights(again), weights(whole))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines if "loss" in line] == expected.losses


def test_a_run_killed_after_its_saved_state_goes_on_without_double_lines(tmp_path: Path) -> None:
    made = config(epochs=2)
    expected = loop(made).run()

    def die(progress: Progress) -> None:
        if progress.step == 10:  # the saved state is of step 6
            raise Stopped

    with pytest.raises(Stopped):
        loop(made, tmp_path, notify=die).run()
    again = loop(made, tmp_path)
    again.load_state_dict(read_state(tmp_path))
    assert again.run().losses == expected.losses
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 13))


def test_ctrl_c_during_the_test_loses_no_step(tmp_path: Path) -> None:
    made = config(epochs=1)
    expected = loop(made).run()
    run = loop(made, tmp_path)
    batch = run.data.test.batch

    def at(*args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return batch(*args)

    object.__setattr__(run.data.test, "batch", at)
    with pytest.raises(KeyboardInterrupt):
        run.run()
    again = loop(made, tmp_path)
    again.load_state_dict(read_state(tmp_path))
    result = again.run()
    assert (result.losses, result.tests) == (expected.losses, expected.tests)


def test_the_handler_of_ctrl_c_is_the_users_again_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    loop(config(epochs=1)).run()
    assert signal.getsignal(signal.SIGINT) is before


def test_the_seed_decides_and_nothing_else() -> None:
    first, again, other = (loop(config(epochs=1, seed=s)).run().losses for s in (3, 3, 4))
    assert first == again
    assert first != other


def test_checkpointing_computes_what_plain_computes() -> None:
    sizes = {"patch": 4, "width": 16, "depth": 2, "heads": 2}  # no BatchNorm, which counts twice
    plain, again = (
        loop(config(model="vit", sizes=sizes, method=method, epochs=1)).run()
        for method in ("plain", "checkpoint")
    )
    assert again.losses == plain.losses
    assert again.cost.raw_bytes == plain.cost.raw_bytes
    assert again.cost.stored_bytes < 0.7 * plain.cost.stored_bytes


def test_bf16_halves_what_is_kept_and_still_learns() -> None:
    plain, bf16 = (loop(config("lm", method=method)).run() for method in ("plain", "bf16"))
    assert bf16.cost.raw_bytes == bf16.cost.stored_bytes < 0.9 * plain.cost.raw_bytes
    assert bf16.losses != plain.losses
    assert bf16.metric < 3


def test_a_batch_in_parts_gives_the_gradient_of_the_whole() -> None:
    whole, parts = (
        loop(config("lm", accumulate=n, epochs=1, sizes={**TINY["lm"]["sizes"], "dropout": 0.0}))
        for n in (1, 4)
    )
    expected, found = whole.run().losses, parts.run().losses
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-4, atol=1e-5)
    assert parts.trainer.config.accumulate == 4


def test_tests_come_after_every_nth_epoch_and_after_the_last() -> None:
    result = loop(config(epochs=5, test_every=2)).run()
    assert [test["epoch"] for test in result.tests] == [2, 4, 5]
    assert result.metrics == {"top1": result.tests[-1]["top1"]}


def test_every_step_is_told_and_written(tmp_path: Path) -> None:
    heard: list[Progress] = []
    result = loop(config(epochs=2, method="lossless"), tmp_path, notify=heard.append).run()
    assert [at.step for at in heard] == list(range(1, 13))
    assert {at.steps for at in heard} == {12}
    assert [bool(at.metrics) for at in heard] == [False] * 6 + [True] * 6
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    assert [line["loss"] for line in steps] == [at.loss for at in heard] == result.losses
    assert [line["stored_bytes"] for line in steps] == [result.cost.stored_bytes] * 12
    assert [line["test"] for line in lines if "test" in line] == [
        {"top1": test["top1"]} for test in result.tests
    ]
    saved = json.loads((tmp_path / "result.json").read_text())
    assert saved["metric"] == result.metric
    assert saved["cost"]["ratio"] == result.cost.ratio


def test_the_learning_rate_follows_its_schedule(tmp_path: Path) -> None:
    rates = {}
    for schedule in ("onecycle", "cosine", "constant"):
        out = tmp_path / schedule
        loop(config(epochs=2, schedule=schedule, rate=0.05), out).run()
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        rates[schedule] = [line["rate"] for line in lines if "rate" in line]
    assert rates["constant"] == [0.05] * 12
    assert rates["cosine"][0] == 0.05
    assert rates["cosine"] == sorted(rates["cosine"], reverse=True)
    assert rates["cosine"][-1] < 0.001
    peak = rates["onecycle"].index(max(rates["onecycle"]))
    assert 0 < peak < 11
    assert max(rates["onecycle"]) == pytest.approx(0.05, rel=0.05)


def test_a_batch_larger_than_the_data_is_refused_before_training() -> None:
    with pytest.raises(ValueError, match="a batch of 64 is more than the 48 training examples"):
        loop(config(batch=64))


def test_another_config_does_not_resume(tmp_path: Path) -> None:
    made = config(epochs=1)
    loop(made, tmp_path).run()
    other = loop(replace(made, batch=16))
    with pytest.raises(ValueError, match="the saved state is of"):
        other.load_state_dict(read_state(tmp_path))


def test_run_loads_the_data_that_the_config_names(tmp_path: Path) -> None:
    made = make(model="resnet8", epochs=1, batch=64, limit=64, side=8, threads=1)
    result: Result = engine.run(made, tmp_path)
    assert len(result.losses) == 1
    assert (tmp_path / STATE).exists()
