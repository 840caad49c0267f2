"""actzip plan: a table, a page, JSON, the largest batch, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from actzip import accelerator, cli
from simulated import Device

SMALL = ["--model", "resnet8", "--batch", "6", "--side", "16", "--noises", ""]


def invoke(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(cli.app, ["plan", *arguments], env={"COLUMNS": "140"})
    return found.exit_code, found.stdout, found.stderr


def test_a_built_in_model_as_a_table_and_a_page(tmp_path: Path) -> None:
    out = tmp_path / "plan.html"
    code, output, _ = invoke(*SMALL, "--methods", "actnn", "--memory", "20MiB", "--out", str(out))
    assert code == 0, output
    assert "resnet8, input 6×1×16×16" in output
    plain, actnn = (
        int(re.search(rf"^ *{name} .* (\d+) *$", output, re.MULTILINE)[1])  # type: ignore[index]
        for name in ("plain", "actnn")
    )
    assert 6 < plain < actnn
    data = json.loads(
        re.search(r'type="application/json">(.*?)</script>', out.read_text())[1]  # type: ignore[index]
    )
    assert list(data["modules"]) == ["plain", "actnn"]


def test_a_device_need_not_be_here_and_gives_its_memory_as_the_limit_if_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = (*SMALL, "--methods", "actnn", "--json")
    here, there = (json.loads(invoke(*asked, *more)[1]) for more in ((), ("--device", "cuda:3")))
    assert there["device"] == "cuda"
    assert any(note.startswith("Predicted for cuda") for note in there["notes"])
    # oneDNN's copies are not taken there, and nothing else is another
    for cpu, gpu in zip(here["steps"], there["steps"], strict=True):
        assert gpu["stored_bytes"] == cpu["stored_bytes"]
        assert gpu["live_peak"] < cpu["live_peak"]
        assert gpu["largest_batch"] is None
    device = Device(total=20 << 20)
    monkeypatch.setattr(accelerator, "library", lambda on: device if on.type == "cuda" else None)
    limited = json.loads(invoke(*asked, "--device", "cuda")[1])
    assert 6 < limited["steps"][0]["largest_batch"] < limited["steps"][1]["largest_batch"]


def test_json_has_auto_by_a_few_real_steps() -> None:
    code, output, _ = invoke(*SMALL[:-1], "0.1", "--methods", "lossless", "--json")
    assert code == 0, output
    found = json.loads(output)
    assert [each["label"] for each in found["steps"]] == ["plain", "lossless", "auto:noise=0.1"]
    assert found["steps"][2]["ratio"] > 4
    assert found["optimizer_state"] == found["gradients"]
    assert any("real steps" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "comet"], "follow from values"),
        (["--noises", "x"], "noises are numbers"),
        (["--device", "tpu"], "unknown device: 'tpu'"),
        (["plan.plan_nets:looks_at_values", "--noises", ""], "cannot be run without values"),
        (["plan.plan_nets:gated", "--side", "8"], "of a built-in model"),
    ],
)
def test_what_cannot_be_planned_is_said(arguments: list[str], message: str) -> None:
    code, _, error = invoke(*arguments)
    assert code == 2
    assert message in re.sub(r"\s*│\s*\n?\s*│?\s*", " ", error)
