"""actzip data: what would be read, and what is wrong with it; train without --task."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from actzip import cli


def invoke(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(cli.app, list(arguments), env={"COLUMNS": "160"})
    return found.exit_code, found.output


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Five red and five blue pictures, and a broken one."""
    for name, colour in (("red", (200, 0, 0)), ("blue", (0, 0, 200))):
        (tmp_path / "set" / name).mkdir(parents=True)
        for i in range(5):
            Image.new("RGB", (12, 10), colour).save(tmp_path / "set" / name / f"{i}.png")
    (tmp_path / "set" / "red" / "broken.png").write_bytes(b"")
    return tmp_path / "set"


def test_counts_classes_and_what_is_left_out_are_shown(pictures: Path) -> None:
    code, output = invoke("data", str(pictures), "--side", "16")
    assert code == 0, output
    assert "set: classify, class folders, no split of their own" in output
    assert "8 to train with, 2 to test with; pictures of 16×16" in output
    assert re.search(r"blue +4 +1", output)
    assert "left out, 1:" in output
    assert "broken.png: the picture is broken" in output


def test_the_same_as_json_and_with_a_sheet(pictures: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.png"
    code, output = invoke("data", str(pictures), "--json", "--sheet", str(sheet))
    assert code == 0, output
    values = json.loads(output[output.index("{") :])
    assert (values["task"], values["train"], values["test"]) == ("classify", 8, 2)
    assert values["classes"][0] == {"name": "blue", "train": 4, "test": 1}
    assert len(values["problems"]) == 1
    with Image.open(sheet) as image:
        assert image.size == (6 * 160, 2 * 174)
        seen = {image.getpixel((160 * i + 80, 80)) for i in range(6)}
    assert len(seen) == 2  # red ones and blue ones


@pytest.mark.parametrize("task", ["detect", "segment"])
def test_boxes_and_masks_are_drawn_into_the_sheet(tmp_path: Path, task: str) -> None:
    sheet = tmp_path / "sheet.png"
    arguments = ["digit-scenes", "--task", task, "--limit", "4", "--sheet", str(sheet), "--json"]
    code, output = invoke("data", *arguments)
    assert code == 0, output
    values = json.loads(output[output.index("{") :])
    total = sum(each["train"] for each in values["classes"])
    assert total == 4 * 96 * 96 if task == "segment" else 4 <= total <= 20
    with Image.open(sheet) as image:
        assert image.size == (6 * 160, 174)


def test_texts_are_shown_as_tokens(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text;label\n" + "good words;up\nbad words;down\n" * 5)
    code, output = invoke("data", str(tmp_path / "a.csv"))
    assert code == 0, output
    assert "text, csv; texts in 'text', labels in 'label'" in output
    assert "8 to train with, 2 to test with; 128 tokens each" in output
    code, output = invoke("data", str(tmp_path / "a.csv"), "--sheet", str(tmp_path / "x.png"))
    assert code == 2
    assert "a contact sheet shows pictures" in output


def test_what_cannot_be_read_ends_with_a_message(pictures: Path, tmp_path: Path) -> None:
    code, output = invoke("data", str(pictures), "--strict")
    assert code == 2
    assert "without --strict these are left out" in re.sub(r"[\s│]+", " ", output)
    (tmp_path / "empty").mkdir()
    code, output = invoke("data", str(tmp_path / "empty"))
    assert code == 2
    assert "empty/ empty" in output
    assert "JPEGImages/ + Annotations/*.xml" in output
    code, output = invoke("data", "nowhere")
    assert code == 2
    assert "'nowhere' is no path and no built-in name" in output


def test_training_needs_no_task_when_the_data_say_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("review;stars\n" + "good words;5\nbad words;1\n" * 20 + ";3\n")
    arguments = ["--data", str(tmp_path / "a.csv"), "--method", "plain", "--model", "gru"]
    arguments += ["--size", "width=8", "--batch", "8", "--epochs", "1", "--length", "8"]
    with pytest.warns(UserWarning, match="a text or a label is missing"):
        code, output = invoke("train", *arguments, "--out", str(tmp_path / "run"))
    assert code == 0, output
    values = json.loads((tmp_path / "run" / "result.json").read_text())
    assert values["config"]["task"] == "text"
    code, output = invoke("train", *arguments, "--strict", "--out", str(tmp_path / "other"))
    assert code == 2
    assert "row 42: a text or a label is missing" in re.sub(r"[\s│]+", " ", output)
