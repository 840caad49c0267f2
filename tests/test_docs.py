"""What the pages show works: the tutorial's code runs, and the commands take the options."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import fields
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from typer.testing import CliRunner

import actzip
from actzip.cli import app
from actzip.memory.sizes import read_bytes

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = [
    command
    for page in PAGES
    for command in re.findall(
        r"^actzip [a-z-]+(?: --.*)?$|(?<=`)actzip [a-z][^`]*(?=`)", page.read_text(), re.M
    )
]


def test_the_tutorials_code_runs_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "tutorial.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 6
    code = "\n".join(blocks).replace("(128,", "(4,")  # a batch that a test can afford
    names: dict[str, object] = {}
    exec(compile(code, "tutorial.md", "exec"), names)
    said = capsys.readouterr().out
    assert "ConvolutionBackward0" in said
    assert "sgd" in said
    names["session"].remove()  # type: ignore[attr-defined]


HOWTO = sorted((ROOT / "docs" / "howto").glob("*.md"))


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
@pytest.mark.parametrize("page", [ROOT / "docs" / "index.md", *HOWTO], ids=lambda p: p.stem)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = page.read_text()
    blocks = [
        textwrap.dedent(block)
        for block in re.findall(r"^ *```python\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    ]
    assert blocks
    if page.stem == "lora":
        pytest.importorskip("peft")
    monkeypatch.chdir(tmp_path)
    names = given(page.stem)
    exec(compile("\n".join(blocks), page.name, "exec"), names)
    session = names["session"]
    assert isinstance(session, actzip.Session)
    if page.stem != "several-processes":  # which needs a second process to run
        assert session.stats().ratio > 1.2
    session.remove()


def given(page: str) -> dict[str, object]:
    """What the reader of a page has already."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
    model.append(nn.Linear(256, 8))
    x, y = torch.randn(256, 64), torch.randint(0, 8, (256,))
    names: dict[str, object] = {
        "actzip": actzip,
        "torch": torch,
        "F": F,
        "cross_entropy": F.cross_entropy,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        "x": x,
        "y": y,
        "loader": [(x, y)] * 4,
        "batches_of": lambda size: [(x[:size], y[:size])] * 2,
        "DistributedDataParallel": lambda model: model,
    }
    if page == "lora":
        from transformers import BertConfig, BertModel

        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
        names["encoder"] = BertModel(BertConfig(**sizes, intermediate_size=128, vocab_size=64))
        names["inputs"] = {"input_ids": torch.randint(0, 64, (8, 32))}
    return names


def test_the_architecture_page_names_files_that_are_there() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "src" / "actzip").rglob("*.py")]
    named = set(re.findall(r"[\w/]+\.py\b", (ROOT / "docs" / "architecture.md").read_text()))
    assert len(named) > 25
    assert not [name for name in named if not any(f"/{f}".endswith(f"/{name}") for f in files)]


def test_the_glossary_gives_each_word_one_meaning() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    part = text.split("## Glossary")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| .+ \|$", part, re.M)[1:]
    words = [word for row in rows for word in row.split(", ")]
    assert len(words) > 25
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("command", sorted(set(COMMANDS)))
def test_commands_on_the_pages_have_the_options_they_show(command: str) -> None:
    name, *words = command.split()[1:]
    done = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"}, color=False)
    assert done.exit_code == 0, f"there is no command {name!r}"
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.output)
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in said, f"{command}: no option {word}"


@pytest.mark.parametrize("method", [actzip.ActNN, actzip.Division, actzip.Comet, actzip.ACGC])
def test_the_options_on_a_methods_page_have_the_defaults_of_the_code(
    method: type[actzip.Method],
) -> None:
    text = (ROOT / "docs" / "methods" / f"{method.__name__.lower()}.md").read_text()
    table = text[text.index("| option | default |") :].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| `?(.*?)`? \|", table, re.MULTILINE))
    given = {each.name: each.default for each in fields(method) if each.name in shown}
    assert shown.keys() == given.keys()
    assert len(shown) >= 5
    for name, written in shown.items():
        read = read_bytes(written) if "iB" in written else ast.literal_eval(written)
        assert read == given[name], name
