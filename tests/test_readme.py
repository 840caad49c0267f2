"""Figures on the pages are those of the committed results, and what they link to is there."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

from scripts import load

ROOT = Path(__file__).parent.parent


def test_every_table_is_what_the_results_say() -> None:
    tables = load("tables")
    seen: list[str] = []
    for page in tables.PAGES:
        text = page.read_text()
        assert tables.filled(text) == text, f"{page.name}: run python benchmarks/tables.py"
        seen += re.findall(r"<!-- table:(\w+) -->", text)
    assert sorted(seen) == sorted(tables.TABLES), "every table has its place"


def test_results_are_of_one_commit_or_the_page_says_which_are_not() -> None:
    tables = load("tables")
    agreed = json.loads((ROOT / "benchmarks" / "results" / "reference.json").read_text())
    known = subprocess.run(["git", "cat-file", "-e", agreed["commit"]], cwd=ROOT).returncode == 0
    if not known:
        pytest.skip("this copy has no history to compare with")
    page = (ROOT / "docs" / "results.md").read_text()
    (said,) = re.findall(r"differs from commit `(\w+)`'s by at most (\d+) lines", page)
    assert said == (agreed["commit"], str(agreed["lines"]))
    undated = set()
    for name in tables.TABLES:
        _, found = tables.made(name)
        undated |= set() if found else {name}
        for about in found:
            assert not about["commit"].endswith("+"), f"{name}: measured with uncommitted changes"
            lines = load("parts.results").changed_lines(about["commit"], agreed["commit"])
            assert lines is not None, f"{name}: commit {about['commit']} is not in the history"
            assert lines <= agreed["lines"], f"{name}: {lines} lines of src/ differ"
    assert undated == set(agreed["undated"]), "those that are older than the record of commits"


def test_every_link_leads_somewhere() -> None:
    for name in (
        "README.md",
        "CONTRIBUTING.md",
        *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
    ):
        page = ROOT / name
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_is_short_and_has_one_table_of_results() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 130
    assert re.findall(r"<!-- table:(\w+) -->", text) == ["face"]


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_the_readmes_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert "Relu.result: mask" in said


def test_the_readmes_three_lines_are_a_training(capsys: pytest.CaptureFixture[str]) -> None:
    (diff,) = re.findall(r"```diff\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(re.findall(r"^\+", diff, re.MULTILINE)) == 3
    code = "\n".join(line[1:] for line in diff.splitlines())
    exec(compile(code, "README.md", "exec"), training())
    assert "Addmm.mat1: linear, Group(bits=2" in capsys.readouterr().out


def training() -> dict[str, object]:
    """What the script has besides the lines that are shown."""
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
    return {
        "MyModel": lambda: model,
        "loader": [(torch.randn(32, 64), torch.randint(0, 8, (32,)))] * 2,
        "cross_entropy": nn.functional.cross_entropy,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }
