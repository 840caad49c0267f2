"""actzip profile: bytes per module and op, as a table and as a page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from actzip import cli

SMALL = ["--model", "resnet8", "--batch", "4", "--side", "16"]


def invoke(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(cli.app, ["profile", *arguments], env={"COLUMNS": "140"})
    return found.exit_code, found.output


def test_a_built_in_model_before_and_after_methods(tmp_path: Path) -> None:
    out = tmp_path / "profile.html"
    code, output = invoke(*SMALL, "--methods", "plain,actnn:bits=3,division", "--out", str(out))
    assert code == 0, output
    assert "resnet8, input 4×1×16×16" in output
    plain, actnn, division = (
        float(re.search(rf"^ *{name} .*?([\d.]+)×", output, re.MULTILINE)[1])  # type: ignore[index]
        for name in ("plain", "actnn:bits=3", "division")
    )
    assert plain == 1 < actnn
    assert plain < division
    assert re.search(r"stem\.1 +64.00 KiB +[\d.]+ KiB +[\d.]+ KiB", output)
    assert re.search(r"NativeBatchNorm +[\d.]+ KiB", output)
    text = out.read_text()
    data = json.loads(re.search(r'type="application/json">(.*?)</script>', text)[1])  # type: ignore[index]
    assert list(data["modules"]) == list(data["ops"]) == ["plain", "actnn:bits=3", "division"]
    assert [each["label"] for each in data["memory"]] == ["plain", "actnn:bits=3", "division"]
    assert len(data["cards"]) == 3


def test_a_users_own_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import torch\ndef f(): return torch.nn.Sequential(torch.nn.Linear(512, 512), "
    text += "torch.nn.GELU(), torch.nn.Linear(512, 8)), torch.randn(64, 512)\n"
    (tmp_path / "own_model_here.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    code, output = invoke("own_model_here:f", "--methods", "lossless,actnn")
    assert code == 0, output
    assert re.search(r"Gelu +128.00 KiB", output)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "bf16"], "profile shows plain, lossless, auto, actnn"),
        (["--methods", "plain:bits=2"], "no option bits"),
        (["--out", "/dev/null/x.html"], "/dev/null cannot be written"),
        (["--size", "width=0"], "must be a whole number, 1 or more, got 0"),
        (["--threads", "0"], "threads must be a whole number"),
        (["--methods", "actnn:bits=0"], "an average of 1 to 8"),
        (["--model", "alexnet"], "allowed are resnet8"),
        (["a.b:c"], "cannot import a.b"),
        (["json:loads"], "json:loads is called without arguments, and cannot be: missing a"),
        (["json:__name__"], "cannot be: 'json' is not a callable object"),
        (["a.b:c", "--batch", "4"], "batch: of a built-in model, but a.b:c was given"),
    ],
)
def test_what_cannot_be_profiled_is_refused(arguments: list[str], message: str) -> None:
    code, output = invoke(*arguments)
    assert code == 2
    assert message in re.sub(r"[\s│]+", " ", output)
