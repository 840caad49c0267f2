"""`actzip doctor` with as little to do as possible: what it prints, what it writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from actzip import cli
from actzip.codecs import Group, Keep
from actzip.doctor import codes, timings
from actzip.doctor.finding import Finding

TINY = timings.Size(
    1 << 12, 1, pictures=2, side=32, texts=2, length=16, width=48, depth=1, words=64
)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(timings.Size, "small", lambda: TINY)
    monkeypatch.setattr(timings, "CODECS", (Group(2),))
    monkeypatch.setattr(timings, "METHODS", ("plain", "fixed"))
    monkeypatch.setattr(codes, "KIT", ((Keep(), None),))
    monkeypatch.setattr(codes, "cases", lambda elements: [(Group(2), torch.randn(elements))])
    yield
    torch.set_num_threads(threads)


def _run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli.app, ["doctor", "--quick", *arguments], env={"COLUMNS": "200"})
    return done.exit_code, done.output


def test_it_prints_what_is_there_and_writes_one_file(tmp_path: Path) -> None:
    code, output = _run("--device", "cpu", "--out", str(tmp_path / "found.json"))
    assert code == 0, output
    for words in ("device: cpu", "kernels: native", f"torch {torch.__version__}", "1 of 1 cases",
                  "nothing wrong was found", "Group(bits=2)", "ResNet-50", "GPT"):  # fmt: skip
        assert words in output
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["facts"]["backend"] == "native"
    assert all(each["sound"] for each in found["findings"])
    assert {(each["model"], each["method"]) for each in found["steps"]} == {
        (model, method) for model in ("ResNet-50", "GPT") for method in ("plain", "fixed")
    }
    assert found["codecs"][0]["encode_ratio"] > 0


def test_what_is_wrong_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Finding("bytes of Group(bits=2)", False, "3 of 10 bytes", "send the file")
    monkeypatch.setattr(codes, "equal_bytes", lambda device, elements: [wrong])
    monkeypatch.setattr(timings, "MODELS", {})
    monkeypatch.setattr(timings, "CODECS", ())
    code, output = _run("--device", "cpu", "--out", str(tmp_path / "found.json"))
    assert code == 1
    assert "WRONG: bytes of Group(bits=2): 3 of 10 bytes" in output
    assert "what to do: send the file" in output
    assert not json.loads((tmp_path / "found.json").read_text())["findings"][-1]["sound"]


@pytest.mark.parametrize(
    ("asked", "words"), [("tpu", "unknown device: 'tpu'"), ("xpu:3", "xpu:3 is not there")]
)
def test_a_device_that_is_not_there_is_refused(asked: str, words: str) -> None:
    code, output = _run("--device", asked)
    assert code == 2
    assert words in " ".join(output.replace("│", " ").split())
